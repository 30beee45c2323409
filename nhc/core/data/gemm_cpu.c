/* Matrix products on every processor, each proved right and compared bit by bit: finds cores that compute wrongly.
 *
 *     gemm_cpu SECONDS
 *
 * Every processor makes the same products of random matrices, bound to it, over and over, each processor alone with its
 * own copy. Three proofs: a product of 64-bit integers must have the row sums that its factors give (checksums of
 * algorithm-based fault tolerance, Huang and Abraham 1984; exact modulo 2^64), a product of doubles must have the same
 * bits each time, and the bits of all processors must be the same (nhc compares the hashes). Prints JSON lines, see
 * nhc/node/checks/deep_gemm.py.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N 160
#define SETS 8

struct core {
    pthread_t thread;
    int cpu, failed;
    unsigned long rounds, changed, wrong, nan;
    uint64_t hash;
    double spent, slowest;
};
static double seconds;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static uint64_t next(uint64_t *state) { /* splitmix64, by Sebastiano Vigna, public domain */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t hash(uint64_t from, const void *data, size_t size) { /* FNV-1a over 64-bit words */
    const uint64_t *words = data;
    for (size_t i = 0; i < size / sizeof *words; i++) from = (from ^ words[i]) * 0x100000001b3u;
    return from;
}

static void multiply(const double *restrict a, const double *restrict b, double *restrict c) {
    memset(c, 0, sizeof(double) * N * N);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            double left = a[i * N + k];
            for (int j = 0; j < N; j++) c[i * N + j] += left * b[k * N + j];
        }
}

static void multiply_whole(const uint64_t *restrict a, const uint64_t *restrict b, uint64_t *restrict c) {
    memset(c, 0, sizeof(uint64_t) * N * N);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            uint64_t left = a[i * N + k];
            for (int j = 0; j < N; j++) c[i * N + j] += left * b[k * N + j];
        }
}

static unsigned long wrong_rows(const uint64_t *a, const uint64_t *b, const uint64_t *c) {
    uint64_t sums[N];
    unsigned long wrong = 0;
    for (int k = 0; k < N; k++) {
        sums[k] = 0;
        for (int j = 0; j < N; j++) sums[k] += b[k * N + j];
    }
    for (int i = 0; i < N; i++) {
        uint64_t want = 0, have = 0;
        for (int k = 0; k < N; k++) want += a[i * N + k] * sums[k];
        for (int j = 0; j < N; j++) have += c[i * N + j];
        wrong += want != have;
    }
    return wrong;
}

static void *work(void *argument) {
    struct core *me = argument;
    uint64_t *whole = malloc(3 * sizeof(uint64_t) * N * N);
    double *real = malloc(3 * sizeof(double) * N * N);
    uint64_t first[SETS];
    int known[SETS] = {0};
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(me->cpu, &own);
    if (!whole || !real || pthread_setaffinity_np(pthread_self(), sizeof own, &own)) { me->failed = 1; return NULL; }
    double start = now();
    for (unsigned long round = 0; round < SETS || now() - start < seconds; round++) {
        int set = (int)(round % SETS);
        uint64_t seed = 0x6e6863u + (uint64_t)set, found;
        for (int i = 0; i < 2 * N * N; i++) {
            uint64_t word = next(&seed);
            whole[i] = word;
            real[i] = (double)(int64_t)word * 0x1p-63;
        }
        double began = now(), took;
        multiply(real, real + N * N, real + 2 * N * N);
        took = now() - began;
        if (2.0 * N * N * N / took < me->slowest || me->slowest == 0) me->slowest = 2.0 * N * N * N / took;
        me->spent += took;
        multiply_whole(whole, whole + N * N, whole + 2 * N * N);
        me->wrong += wrong_rows(whole, whole + N * N, whole + 2 * N * N);
        for (int i = 0; i < N * N; i++) me->nan += isnan(real[2 * N * N + i]) != 0;
        found = hash(hash(0xcbf29ce484222325u, real + 2 * N * N, sizeof(double) * N * N), whole + 2 * N * N,
                     sizeof(uint64_t) * N * N);
        if (!known[set]) { known[set] = 1; first[set] = found; }
        else me->changed += found != first[set];
        me->rounds++;
    }
    me->hash = hash(0xcbf29ce484222325u, first, sizeof first);
    free(whole);
    free(real);
    return NULL;
}

int main(int argc, char **argv) {
    cpu_set_t allowed;
    if (argc != 2) { fprintf(stderr, "usage: gemm_cpu SECONDS\n"); return 2; }
    seconds = atof(argv[1]);
    sched_getaffinity(0, sizeof allowed, &allowed);
    int count = CPU_COUNT(&allowed), at = 0, listed = 0;
    struct core *cores = calloc((size_t)count, sizeof *cores);
    printf("{\"kind\": \"begin\", \"engine\": \"cpu\", \"version\": \"1\", \"size\": %d, \"dtype\": \"fp64+int64\", "
           "\"seconds\": %g}\n", N, seconds);
    fflush(stdout);
    for (int cpu = 0; cpu < CPU_SETSIZE && at < count; cpu++)
        if (CPU_ISSET(cpu, &allowed)) {
            cores[at].cpu = cpu;
            if (pthread_create(&cores[at].thread, NULL, work, &cores[at])) cores[at].failed = 2;
            at++;
        }
    for (int each = 0; each < count; each++) {
        struct core *one = &cores[each];
        if (one->failed != 2) pthread_join(one->thread, NULL);
        if (one->failed) {
            printf("{\"kind\": \"trouble\", \"message\": \"cpu %d cannot be used\"}\n", one->cpu);
            continue;
        }
        printf("{\"kind\": \"device\", \"device\": %d, \"name\": \"cpu\", \"rounds\": %lu, \"seconds\": %.3f, "
               "\"tflops\": %.6f, \"slowest\": %.6f, \"hash\": \"%016llx\", \"changed\": %lu, \"wrong\": %lu, "
               "\"nan\": %lu}\n",
               one->cpu, one->rounds, seconds, one->spent > 0 ? 2e-12 * N * N * N * (double)one->rounds / one->spent : 0,
               one->slowest * 1e-12, (unsigned long long)one->hash, one->changed, one->wrong, one->nan);
        listed++;
    }
    printf("{\"kind\": \"end\", \"devices\": %d}\n", listed);
    return fflush(stdout) ? 1 : 0;
}
