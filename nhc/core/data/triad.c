/* Memory bandwidth of a node: copy, scale, add and triad over three arrays of doubles, on every processor allowed.
 *
 *     triad BYTES_OF_AN_ARRAY SECONDS
 *
 * The kernels are those that John McCalpin's STREAM made the measure of memory bandwidth; this is another program, and
 * its figures are in GB/s. Each array must be at least four times the last-level cache. Each thread is bound to its
 * processor and touches its part first, so that memory is the nearest. The best pass counts, and the arrays must hold
 * in the end what the passes give by arithmetic. Prints `array N bytes T threads`, `rate KERNEL R GB/s`,
 * `validated yes|no`, `end`.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPY, SCALE, ADD, TRIAD, KERNELS };
static const char *const NAMES[KERNELS] = {"copy", "scale", "add", "triad"};
static const double WORDS[KERNELS] = {2, 2, 3, 3};

static double *a, *b, *c, best[KERNELS], seconds;
static size_t length;
static int threads, *cpus, passes, stop;
static const double scalar = 3.0;
static pthread_barrier_t barrier;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void kernel(int which, size_t from, size_t to) {
    size_t i;
    switch (which) {
    case COPY: for (i = from; i < to; i++) c[i] = a[i]; break;
    case SCALE: for (i = from; i < to; i++) b[i] = scalar * c[i]; break;
    case ADD: for (i = from; i < to; i++) c[i] = a[i] + b[i]; break;
    default: for (i = from; i < to; i++) a[i] = b[i] + scalar * c[i]; break;
    }
}

static void *work(void *argument) {
    int me = (int)(size_t)argument;
    size_t from = length / (size_t)threads * (size_t)me;
    size_t to = me == threads - 1 ? length : from + length / (size_t)threads;
    double began = 0, start = 0;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpus[me], &own);
    pthread_setaffinity_np(pthread_self(), sizeof own, &own);
    for (size_t i = from; i < to; i++) { a[i] = 1e-3; b[i] = 2e-3; c[i] = 0.0; }
    pthread_barrier_wait(&barrier);
    if (me == 0) start = now();
    for (;;) {
        for (int which = 0; which < KERNELS; which++) {
            pthread_barrier_wait(&barrier);
            if (me == 0) began = now();
            kernel(which, from, to);
            pthread_barrier_wait(&barrier);
            if (me == 0) {
                double rate = WORDS[which] * sizeof(double) * (double)length / (now() - began) / 1e9;
                if (rate > best[which]) best[which] = rate;
            }
        }
        if (me == 0) {
            passes++;
            /* a grows fifteenfold a pass: stop well before its doubles overflow */
            stop = (now() - start >= seconds && passes >= 3) || passes >= 200;
        }
        pthread_barrier_wait(&barrier);
        if (stop) {
            if (me == 0 && now() - start < seconds && passes >= 200) stop = 2;
            pthread_barrier_wait(&barrier);
            if (stop == 1) return NULL;
            for (size_t i = from; i < to; i++) { a[i] = 1e-3; b[i] = 2e-3; c[i] = 0.0; } /* begin anew */
            if (me == 0) { passes = 0; stop = 0; }
            pthread_barrier_wait(&barrier);
        }
    }
}

static int holds(void) {
    double want_a = 1e-3, want_b = 2e-3, want_c = 0.0;
    for (int pass = 0; pass < passes; pass++) {
        want_c = want_a;
        want_b = scalar * want_c;
        want_c = want_a + want_b;
        want_a = want_b + scalar * want_c;
    }
    for (size_t i = 0; i < length; i++)
        if (!(fabs(a[i] / want_a - 1) < 1e-12) || !(fabs(b[i] / want_b - 1) < 1e-12) ||
            !(fabs(c[i] / want_c - 1) < 1e-12))
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    cpu_set_t allowed;
    if (argc != 3) { fprintf(stderr, "usage: triad BYTES SECONDS\n"); return 2; }
    length = (size_t)strtoull(argv[1], NULL, 10) / sizeof(double);
    seconds = atof(argv[2]);
    sched_getaffinity(0, sizeof allowed, &allowed);
    threads = CPU_COUNT(&allowed);
    if (length < (size_t)threads || threads < 1) { fprintf(stderr, "triad: the array is too small\n"); return 2; }
    cpus = calloc((size_t)threads, sizeof *cpus);
    for (int cpu = 0, at = 0; cpu < CPU_SETSIZE && at < threads; cpu++)
        if (CPU_ISSET(cpu, &allowed)) cpus[at++] = cpu;
    if (posix_memalign((void **)&a, 4096, length * sizeof(double)) ||
        posix_memalign((void **)&b, 4096, length * sizeof(double)) ||
        posix_memalign((void **)&c, 4096, length * sizeof(double))) {
        fprintf(stderr, "triad: no memory for three arrays\n");
        return 1;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t *made = calloc((size_t)threads, sizeof *made);
    for (int each = 1; each < threads; each++)
        if (pthread_create(&made[each], NULL, work, (void *)(size_t)each)) {
            fprintf(stderr, "triad: no thread can be started\n");
            return 1;
        }
    work((void *)0);
    for (int each = 1; each < threads; each++) pthread_join(made[each], NULL);
    printf("array %zu bytes %d threads\n", length * sizeof(double), threads);
    for (int which = 0; which < KERNELS; which++) printf("rate %s %.3f GB/s\n", NAMES[which], best[which]);
    printf("validated %s\n", holds() ? "yes" : "no");
    printf("end\n");
    return fflush(stdout) ? 1 : 0;
}
