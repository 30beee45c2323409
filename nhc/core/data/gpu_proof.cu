// The kernels of check_gpu_proof. `make ptx` turns them into nhc/core/data/gpu_proof_*.ptx, which a driver translates for
// its GPU: no CUDA toolkit on the node. nhc/node/gpu_proof/kernels.py lists them, with their parameters.
//
// One source, three texts. PROOF_TENSOR says which tensor products are in it:
//   70  wmma on fp16: Volta and Turing                   (PTX 7.8, drivers from 520 on)
//   80  mma.sync on bf16, fp16, tf32, int8, fp64: Ampere and everything newer        (PTX 7.8)
//   89  mma.sync on fp8, nothing else: Ada, Hopper, and newer                        (PTX 8.4, drivers from 550 on)
// For AMD's GPUs hiprtc compiles this source on the node (__HIP__): MFMA on gfx90a, gfx942 and gfx950.
//
// Every warp computes the same, and every lane compares its own accumulators with what the host computed in whole
// numbers. What differs is counted for the SM that the warp ran on, so that a fault has a place.

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256
#define SETS 4   // operands: the product of tile j in step s is A[s] times B[(s + j) % SETS]
#define TILES 8  // independent accumulators of a warp: as many as keep the tensor unit busy
// An accumulator is compared and begins anew after so many rounds. Sums stay below 2^14, so that they are exact even
// where a tensor unit keeps fewer bits than fp32 has (Hopper's for fp8: arXiv 2412.19437, section 3.3.2).
#define INNER 32

#ifdef __HIP__
// Where a wave runs, from the registers HW_ID (4) and XCC_ID (20): XCC * 64 + shader engine * 16 + compute unit. Places
// of the fields: AMD, "AMD Instinct MI200" and "MI300" Instruction Set Architecture; amd_device_functions.h of HIP.
#define FIELD(NUMBER, FIRST, BITS) __builtin_amdgcn_s_getreg((((BITS) - 1) << 11) | ((FIRST) << 6) | (NUMBER))
__device__ __forceinline__ u32 this_sm() {
#ifdef __gfx90a__
  return FIELD(4, 13, 3) * 16 + FIELD(4, 8, 4);
#else
  return FIELD(20, 0, 4) * 64 + FIELD(4, 13, 2) * 16 + FIELD(4, 8, 4);
#endif
}

// Past a compute unit's own cache, both ways.
#define PAST_L1_WRITE(PLACE, VALUE) __hip_atomic_store(PLACE, VALUE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define PAST_L1_READ(PLACE) __hip_atomic_load(PLACE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#else
#define PAST_L1_WRITE(PLACE, VALUE) __stcg(PLACE, VALUE)
#define PAST_L1_READ(PLACE) __ldcg(PLACE)

__device__ __forceinline__ u32 this_sm() {
  u32 number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}
#endif

// `seen` counts the warps that ran on each SM, `wrong` the results that differed there. `spoil` is an SM whose result
// counts as wrong, to try whether it is found; no GPU has an SM 0xffffffff.
__device__ __forceinline__ void account(u32 differing, u32* seen, u32* wrong, u32 spoil) {
  u32 sm = this_sm();
  if (sm == spoil && threadIdx.x == 0) differing++;
  if (differing) atomicAdd(&wrong[sm], differing);
  if ((threadIdx.x & 31) == 0) atomicAdd(&seen[sm], 1u);
}

#ifdef __HIP__
// A wave of 64 lanes multiplies 16 by 16. operands: [set][lane][2], a lane's part of A and of B; sums: [tile][lane][4].
// Which element is where: AMD, matrix_calculator.py (ROCm/amd_matrix_instruction_calculator).
#define LANE_PART(NAME, TYPE, COUNT) typedef TYPE NAME __attribute__((ext_vector_type(COUNT)))
LANE_PART(half4_, _Float16, 4);
LANE_PART(short4_, short, 4);
LANE_PART(float2_, float, 2);
LANE_PART(float4_, float, 4);
LANE_PART(int4_, int, 4);
LANE_PART(double4_, double, 4);

#define TENSOR_KERNEL(NAME, GIVEN, SUM, SUMS, PRODUCT)                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const GIVEN* __restrict__ operands, const SUM* __restrict__ sums, u32 rounds, u32* seen, u32* wrong,        \
           u32 spoil) {                                                                                                \
    u32 lane = threadIdx.x & 63, differing = 0;                                                                        \
    GIVEN a[SETS], b[SETS];                                                                                            \
    SUMS d[TILES];                                                                                                     \
    _Pragma("unroll") for (int s = 0; s < SETS; s++) {                                                                 \
      a[s] = operands[(s * 64 + lane) * 2];                                                                            \
      b[s] = operands[(s * 64 + lane) * 2 + 1];                                                                        \
    }                                                                                                                  \
    _Pragma("unroll 1") for (u32 done = 0; done < rounds; done += INNER) {                                             \
      _Pragma("unroll") for (int j = 0; j < TILES; j++) d[j] = (SUMS)(SUM)0;                                           \
      _Pragma("unroll 1") for (u32 r = 0; r < INNER; r++) {                                                            \
        _Pragma("unroll") for (int s = 0; s < SETS; s++)                                                               \
          _Pragma("unroll") for (int j = 0; j < TILES; j++)                                                            \
            d[j] = PRODUCT(a[s], b[(s + j) % SETS], d[j], 0, 0, 0);                                                    \
      }                                                                                                                \
      _Pragma("unroll") for (int j = 0; j < TILES; j++)                                                                \
        _Pragma("unroll") for (int i = 0; i < 4; i++)                                                                  \
          differing += d[j][i] != sums[(j * 64 + lane) * 4 + i] * (SUM)INNER;                                          \
    }                                                                                                                  \
    account(differing, seen, wrong, spoil);                                                                            \
  }

TENSOR_KERNEL(tensor_bf16, short4_, float, float4_, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k)
TENSOR_KERNEL(tensor_fp16, half4_, float, float4_, __builtin_amdgcn_mfma_f32_16x16x16f16)
TENSOR_KERNEL(tensor_fp64, double, double, double4_, __builtin_amdgcn_mfma_f64_16x16x4f64)
#ifdef __gfx90a__
TENSOR_KERNEL(tensor_int8, int, int, int4_, __builtin_amdgcn_mfma_i32_16x16x16i8)
#else
TENSOR_KERNEL(tensor_int8, long, int, int4_, __builtin_amdgcn_mfma_i32_16x16x32_i8)
TENSOR_KERNEL(tensor_fp8, long, float, float4_, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8)
#endif
#ifdef __gfx942__
TENSOR_KERNEL(tensor_tf32, float2_, float, float4_, __builtin_amdgcn_mfma_f32_16x16x8_xf32)
#endif
#endif

#if PROOF_TENSOR == 80 || PROOF_TENSOR == 89

// operands: [set][lane][NA + NB] registers, as PTX's "Warp Level Matrix Multiply-Accumulate" lays a lane's fragment out.
// sums: [tile][lane][4], what one round adds to each accumulator.
#define TENSOR_KERNEL(NAME, SHAPE, SUM, CONSTRAINT, NA, NB)                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const u32* __restrict__ operands, const SUM* __restrict__ sums, u32 rounds, u32* seen, u32* wrong,          \
           u32 spoil) {                                                                                                \
    u32 lane = threadIdx.x & 31, differing = 0, a[SETS][NA], b[SETS][NB];                                              \
    SUM d[TILES][4];                                                                                                   \
    _Pragma("unroll") for (int s = 0; s < SETS; s++) {                                                                 \
      const u32* fragment = operands + (s * 32 + lane) * (NA + NB);                                                    \
      _Pragma("unroll") for (int i = 0; i < NA; i++) a[s][i] = fragment[i];                                            \
      _Pragma("unroll") for (int i = 0; i < NB; i++) b[s][i] = fragment[NA + i];                                       \
    }                                                                                                                  \
    _Pragma("unroll 1") for (u32 done = 0; done < rounds; done += INNER) {                                             \
      _Pragma("unroll") for (int j = 0; j < TILES; j++)                                                                \
        _Pragma("unroll") for (int i = 0; i < 4; i++) d[j][i] = 0;                                                     \
      _Pragma("unroll 1") for (u32 r = 0; r < INNER; r++) {                                                            \
        _Pragma("unroll") for (int j = 0; j < TILES; j++)                                                              \
          _Pragma("unroll") for (int s = 0; s < SETS; s++) {                                                           \
            const int q = (s + j) % SETS;                                                                              \
            asm volatile("mma.sync.aligned." SHAPE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"           \
                         : "+" CONSTRAINT(d[j][0]), "+" CONSTRAINT(d[j][1]), "+" CONSTRAINT(d[j][2]),                  \
                           "+" CONSTRAINT(d[j][3])                                                                     \
                         : "r"(a[s][0]), "r"(a[s][1]), "r"(a[s][2]), "r"(a[s][3]), "r"(b[q][0]), "r"(b[q][1]));        \
          }                                                                                                            \
      }                                                                                                                \
      _Pragma("unroll") for (int j = 0; j < TILES; j++)                                                                \
        _Pragma("unroll") for (int i = 0; i < 4; i++)                                                                  \
          differing += d[j][i] != sums[(j * 32 + lane) * 4 + i] * (SUM)INNER;                                          \
    }                                                                                                                  \
    account(differing, seen, wrong, spoil);                                                                            \
  }

#if PROOF_TENSOR == 89
TENSOR_KERNEL(tensor_fp8, "m16n8k32.row.col.f32.e4m3.e4m3.f32", float, "f", 4, 2)
#else
TENSOR_KERNEL(tensor_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f", 4, 2)
TENSOR_KERNEL(tensor_fp16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f", 4, 2)
TENSOR_KERNEL(tensor_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f", 4, 2)
TENSOR_KERNEL(tensor_int8, "m16n8k32.row.col.s32.s8.s8.s32", int, "r", 4, 2)

// operands: [set][lane][2] doubles, one of A and one of B; sums: [tile][lane][2].
extern "C" __global__ void __launch_bounds__(THREADS)
    tensor_fp64(const double* __restrict__ operands, const double* __restrict__ sums, u32 rounds, u32* seen, u32* wrong,
                u32 spoil) {
  u32 lane = threadIdx.x & 31, differing = 0;
  double a[SETS], b[SETS], d[TILES][2];
#pragma unroll
  for (int s = 0; s < SETS; s++) {
    a[s] = operands[(s * 32 + lane) * 2];
    b[s] = operands[(s * 32 + lane) * 2 + 1];
  }
#pragma unroll 1
  for (u32 done = 0; done < rounds; done += INNER) {
#pragma unroll
    for (int j = 0; j < TILES; j++) d[j][0] = d[j][1] = 0;
#pragma unroll 1
    for (u32 r = 0; r < INNER; r++) {
#pragma unroll
      for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int s = 0; s < SETS; s++) {
          const int q = (s + j) % SETS;
          asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                       : "+d"(d[j][0]), "+d"(d[j][1])
                       : "d"(a[s]), "d"(b[q]));
        }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
      for (int i = 0; i < 2; i++) differing += d[j][i] != sums[(j * 32 + lane) * 2 + i] * INNER;
  }
  account(differing, seen, wrong, spoil);
}
#endif
#endif

#if PROOF_TENSOR == 70
// The layout of a wmma fragment is the GPU's own affair: the sums are loaded as an accumulator, and compared place by
// place. operands: [set][16][16] fp16 of A, row by row, then as many of B, column by column; sums: [tile][16][16].
extern "C" __global__ void __launch_bounds__(THREADS)
    tensor_fp16(const u32* __restrict__ operands, const float* __restrict__ sums, u32 rounds, u32* seen, u32* wrong,
                u32 spoil) {
  u32 differing = 0;
#pragma unroll 1
  for (u32 done = 0; done < rounds; done += INNER) {
#pragma unroll 1
    for (int j = 0; j < TILES; j++) {
      float d[8] = {0, 0, 0, 0, 0, 0, 0, 0}, want[8];
#pragma unroll 1
      for (u32 r = 0; r < INNER; r++) {
#pragma unroll
        for (int s = 0; s < SETS; s++) {
          u32 a[8], b[8];
          const u32 *left = operands + s * 128, *right = operands + (SETS + (s + j) % SETS) * 128;
          asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
                       : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]), "=r"(a[4]), "=r"(a[5]), "=r"(a[6]), "=r"(a[7])
                       : "l"(__cvta_generic_to_global(left))
                       : "memory");
          asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
                       : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]), "=r"(b[4]), "=r"(b[5]), "=r"(b[6]), "=r"(b[7])
                       : "l"(__cvta_generic_to_global(right))
                       : "memory");
          asm volatile(
              "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
              "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, {%0,%1,%2,%3,%4,%5,%6,%7};"
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(b[0]),
                "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
        }
      }
      asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
                   : "=f"(want[0]), "=f"(want[1]), "=f"(want[2]), "=f"(want[3]), "=f"(want[4]), "=f"(want[5]),
                     "=f"(want[6]), "=f"(want[7])
                   : "l"(__cvta_generic_to_global(sums + j * 256))
                   : "memory");
#pragma unroll
      for (int i = 0; i < 8; i++) differing += d[i] != want[i] * INNER;
    }
  }
  account(differing, seen, wrong, spoil);
}
#endif

#if PROOF_TENSOR != 89
// A number that its place and the seed decide, and that no neighbour has.
__device__ __forceinline__ u32 mix(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

__device__ __forceinline__ u64 mix_wide(u64 x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  return x ^ x >> 33;
}

// The ordinary units: chains of whole-number, fp32 and fp64 operations from `start` on, whose ends the host knows.
// Every intermediate value is a whole number that fp32 (2^24) and fp64 (2^53) hold exactly.
extern "C" __global__ void __launch_bounds__(THREADS)
    units(u32 rounds, u32 start, u32 whole, u32 single, double twofold, u32* seen, u32* wrong, u32 spoil) {
  u32 x = start;
  float f = (float)(start & 0xfffffu);
  double y = (double)start;
#pragma unroll 1
  for (u32 r = 0; r < rounds; r++) {
    x = x * 1664525u + 1013904223u;
    f = fmaf(f, 3.0f, 1.0f);                                               // below 2^22
    f = fmaf(-floorf(f * 9.5367431640625e-07f), 1048576.0f, f);            // modulo 2^20
    y = fma(y, 3.0, 1.0);                                                  // below 2^42
    y = fma(-floor(y * 9.094947017729282379150390625e-13), 1099511627776.0, y);  // modulo 2^40
  }
  account((x != whole) + (f != (float)single) + (y != twofold), seen, wrong, spoil);
}

// All of an SM's shared memory, of `words` words: each thread reads what another one wrote.
extern "C" __global__ void __launch_bounds__(THREADS)
    shared_memory(u32 words, u32 rounds, u32 seed, u32* seen, u32* wrong, u32 spoil) {
  extern __shared__ u32 place[];
  u32 differing = 0;
  for (u32 r = 0; r < rounds; r++) {
    for (u32 i = threadIdx.x; i < words; i += THREADS) place[i] = mix(i + seed + r);
    __syncthreads();
    for (u32 i = threadIdx.x; i < words; i += THREADS) {
      u32 k = words - 1 - i;
      differing += place[k] != mix(k + seed + r);
    }
    __syncthreads();
  }
  account(differing, seen, wrong, spoil);
}

// The L2, past the L1 both ways: `words` words that it holds.
extern "C" __global__ void __launch_bounds__(THREADS)
    cache(u32* place, u32 words, u32 seed, u32 write, u32* seen, u32* wrong, u32 spoil) {
  u32 step = gridDim.x * THREADS, differing = 0;
  for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < words; i += step) {
    if (write) PAST_L1_WRITE(place + i, mix(i + seed));
    else differing += PAST_L1_READ(place + i) != mix(i + seed);
  }
  account(differing, seen, wrong, spoil);
}

// Memory: each 16 bytes hold a number of their place, and its complement. What is written, by `mode`: 0 the number, 1 its
// complement first, so that between the two each bit has been 0 and 1, 2 one bit that walks.
__device__ __forceinline__ u64 pattern(u64 i, u64 seed, u32 mode) {
  if (mode == 2) return 1ull << ((i + seed) & 63);
  u64 number = mix_wide(2 * i + seed);
  return mode ? ~number : number;
}

extern "C" __global__ void __launch_bounds__(THREADS) fill(ulonglong2* place, u64 count, u64 seed, u32 mode) {
  u64 step = (u64)gridDim.x * THREADS;
#pragma unroll 4
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
    ulonglong2 v;
    v.x = pattern(i, seed, mode);
    v.y = ~v.x;
    place[i] = v;
  }
}

// found: how many of the 16 bytes differed, the offset of the first in bytes, all bits that differed (x's and y's).
extern "C" __global__ void __launch_bounds__(THREADS)
    verify(const ulonglong2* place, u64 count, u64 seed, u32 mode, u64* found) {
  u64 step = (u64)gridDim.x * THREADS;
#pragma unroll 4
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
    ulonglong2 v = place[i];
    u64 want = pattern(i, seed, mode);
    if (v.x != want || v.y != ~want) {
      atomicAdd(&found[0], 1ull);
      atomicMin(&found[1], i * 16 + (v.x == want) * 8);
      atomicOr(&found[2], (v.x ^ want) | (v.y ^ ~want));
    }
  }
}
#endif
