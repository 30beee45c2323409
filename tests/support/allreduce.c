/* An all_reduce over MPI that prints as nccl-tests does, for tests: real ranks, real transport, checked values.
 * ALLREDUCE_SLOW names a host whose rank sleeps in each iteration; while the file ALLREDUCE_HOLD is there it runs on. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks, iterations = 3;
    long wrong = 0, size = argc > 1 ? atol(argv[1]) : 1 << 20;
    long count = size / sizeof(float);
    char host[64];
    const char *slow = getenv("ALLREDUCE_SLOW"), *hold = getenv("ALLREDUCE_HOLD");
    double best = 1e9;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gethostname(host, sizeof host);
    char *hosts = malloc(64 * ranks);
    MPI_Gather(host, 64, MPI_CHAR, hosts, 64, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("# nThread 1 nGpus 1 minBytes %ld maxBytes %ld step: 2(factor) warmup iters: 1 iters: %d\n", size, size,
               iterations);
        for (int i = 0; i < ranks; i++)
            printf("#  Rank %2d Group  0 Pid %6d on %10s device  0 [0000:00:00] none\n", i, 1000 + i, hosts + 64 * i);
        printf("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw"
               "   busbw #wrong\n");
        fflush(stdout);
    }
    float *in = malloc(size), *out = malloc(size);
    while (hold && access(hold, F_OK) == 0)
        usleep(100000);
    for (int turn = 0; turn < iterations; turn++) {
        for (long i = 0; i < count; i++)
            in[i] = (float)(rank + i % 7);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        if (slow && strcmp(slow, host) == 0)
            sleep(2);
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = MPI_Wtime() - began, took;
        MPI_Allreduce(&mine, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        best = took < best ? took : best;
        for (long i = 0; i < count; i++)
            wrong += out[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7));
    }
    long all;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        double algbw = size / best / 1e9, busbw = algbw * 2 * (ranks - 1) / ranks;
        char half[128];
        snprintf(half, sizeof half, "%10.1f %8.6f %8.6f %6ld", best * 1e6, algbw, busbw, all);
        printf("%12ld %12ld     float     sum      -1 %s %s\n", size, count, half, half);
        printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %g\n", all, all ? "FAILED" : "OK", busbw);
    }
    MPI_Finalize();
    return 0;
}
