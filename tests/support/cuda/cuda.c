/* A libcuda.so.1 without a GPU: it carries out what the kernels of nhc/core/data/gpu_proof.cu mean, on the processor.
 *
 * Tensor products are computed from the registers of 32 lanes, laid out as NVIDIA's PTX ISA says for each shape: what the
 * host packed wrongly does not come out right here either. FAKE_CUDA says what the GPUs are and what is wrong with them:
 * words with spaces between them.
 *   sms=4  memory=MIB  used=MIB  version=12040  capability=90  peers=0
 *   sm=GPU:SM:KERNEL[:TIMES]   that SM gives a wrong result in a kernel, so many times (default: always)
 *   bit=GPU:OFFSET:BIT         a bit of memory that is always 1 when it is read back
 *   copy=FROM:TO               copies between two GPUs lose a bit; FROM or TO `host` for those to and from the host
 *   idle=GPU:SM                an SM on which nothing runs
 *   error=GPU:CALL:CODE        a call that fails
 *   hang=GPU:CALL              a call that never returns
 *   crash=GPU:CALL             a call that ends the process by SIGSEGV
 * GPU is the number of the whole machine's, also where CUDA_VISIBLE_DEVICES shows one of them. */
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETS = 4, TILES = 8, INNER = 32, LANES = 32, GPUS = 16 };
typedef int Result;
static int sms = 4, visible[GPUS], seen_gpus, current = -1, version = 12040, capability = 90, peers = 1;
static size_t memory_size = 512u << 20, used = 0, taken[GPUS];
static char text[4096], *words[64];
static int word_count;

static const char *word(const char *key, int number) { /* the number-th word that begins with KEY= */
  size_t length = strlen(key);
  for (int i = 0; i < word_count; i++)
    if (!strncmp(words[i], key, length) && words[i][length] == '=' && number-- == 0) return words[i] + length + 1;
  return NULL;
}

static long whole(const char *key, long usual) { return word(key, 0) ? strtol(word(key, 0), NULL, 0) : usual; }

/* Whether the call is one that does not do what it should; the code that it returns. */
static Result fate(const char *call) {
  for (int number = 0; word("hang", number); number++) {
    char name[64]; int gpu;
    if (sscanf(word("hang", number), "%d:%63s", &gpu, name) == 2 && gpu == current && !strcmp(name, call))
      for (;;) pause();
  }
  for (int number = 0; word("crash", number); number++) {
    char name[64]; int gpu;
    if (sscanf(word("crash", number), "%d:%63s", &gpu, name) == 2 && gpu == current && !strcmp(name, call)) raise(SIGSEGV);
  }
  for (int number = 0; word("error", number); number++) {
    char name[64]; int gpu, code;
    if (sscanf(word("error", number), "%d:%63[^:]:%d", &gpu, name, &code) == 3 && gpu == current && !strcmp(name, call))
      return code;
  }
  return 0;
}
#define FATE() do { Result code_ = fate(__func__); if (code_) return code_; } while (0)

static void read_words(void) {
  const char *said = getenv("FAKE_CUDA");
  snprintf(text, sizeof text, "%s", said ? said : "");
  for (char *at = strtok(text, " "); at && word_count < 64; at = strtok(NULL, " ")) words[word_count++] = at;
  sms = whole("sms", 4); version = whole("version", 12040);
  capability = whole("capability", 90); peers = whole("peers", 1);
  memory_size = (size_t)whole("memory", 512) << 20; used = (size_t)whole("used", 0) << 20;
}

Result cuInit(unsigned flags) {
  (void)flags;
  read_words();
  const char *shown = getenv("CUDA_VISIBLE_DEVICES"); /* NUMBER, or GPU-b100000NUMBER-..., MIG-b100000NUMBER-... */
  for (const char *at = shown; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "")
    visible[seen_gpus++] = atoi(isdigit((unsigned char)*at) || strlen(at) < 12 ? at : at + 11);
  if (!seen_gpus) return 100;
  current = visible[0];
  FATE();
  return 0;
}

Result cuGetErrorName(Result code, const char **name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 46 ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
        : code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE"
        : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}

Result cuDriverGetVersion(int *found) { *found = version; return 0; }
Result cuDeviceGetCount(int *count) { FATE(); *count = seen_gpus; return 0; }
Result cuDeviceGet(int *device, int ordinal) {
  FATE();
  if (ordinal < 0 || ordinal >= seen_gpus) return 101;
  *device = ordinal;
  return 0;
}
Result cuDeviceGetName(char *name, int length, int device) { (void)device; snprintf(name, length, "Fake H100"); return 0; }
Result cuDeviceGetPCIBusId(char *name, int length, int device) {
  static const char *bus[] = {"0F", "2D", "44", "5B", "89", "A8", "C0", "D8"};
  snprintf(name, length, "00000000:%s:00.0", bus[visible[device] % 8]);
  return 0;
}
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? sms : attribute == 38 ? 1 << 20 : attribute == 75 ? capability / 10
         : attribute == 76 ? capability % 10 : attribute == 97 ? 64 << 10 : 0;
  return 0;
}
Result cuDevicePrimaryCtxRetain(void **context, int device) {
  current = visible[device];
  FATE();
  *context = (void *)(intptr_t)(visible[device] + 1);
  return 0;
}
Result cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
Result cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context - 1; return 0; }
Result cuCtxSynchronize(void) { FATE(); return 0; }
Result cuModuleLoadData(void **module, const char *ptx) {
  FATE();
  int major, minor;
  const char *at = strstr(ptx, ".version ");
  if (!at || sscanf(at, ".version %d.%d", &major, &minor) != 2) return 218;
  if (major * 10 + minor > (version >= 12040 ? 84 : 78)) return 222; /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION */
  at = strstr(ptx, ".target sm_");
  if (!at || atoi(at + 11) > capability) return 209; /* CUDA_ERROR_NO_BINARY_FOR_GPU */
  *module = (void *)ptx;
  return 0;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = strdup(name);
  return 0;
}
Result cuFuncSetAttribute(void *function, int attribute, int value) { (void)function; (void)attribute; (void)value; return 0; }
Result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  *free_bytes = memory_size - used - taken[current];
  *total = memory_size;
  return 0;
}
Result cuMemAlloc_v2(uint64_t *place, size_t size) {
  FATE();
  if (size + taken[current] > memory_size - used) return 2;
  size_t *block = malloc(size + 16);
  if (!block) return 2;
  block[0] = size;
  taken[current] += size;
  *place = (uint64_t)(uintptr_t)(block + 2);
  return 0;
}
Result cuMemFree_v2(uint64_t place) {
  size_t *block = (size_t *)(uintptr_t)place - 2;
  taken[current] -= block[0];
  free(block);
  return 0;
}
static int copies_fail(const char *from, const char *to) {
  char key[64];
  snprintf(key, sizeof key, "%s:%s", from, to);
  for (int number = 0; word("copy", number); number++) if (!strcmp(word("copy", number), key)) return 1;
  return 0;
}
static char *number_text(int number) { static char one[2][16]; static int at; at = !at; snprintf(one[at], 16, "%d", number); return one[at]; }
Result cuMemcpyHtoD_v2(uint64_t place, const void *data, size_t size) {
  FATE();
  memcpy((void *)(uintptr_t)place, data, size);
  if (size > 65536 && copies_fail("host", number_text(current))) ((char *)(uintptr_t)place)[4099] ^= 4;
  return 0;
}
Result cuMemcpyDtoH_v2(void *data, uint64_t place, size_t size) {
  FATE();
  memcpy(data, (void *)(uintptr_t)place, size);
  if (size > 65536 && copies_fail(number_text(current), "host")) ((char *)data)[77] ^= 2;
  return 0;
}
Result cuMemsetD8_v2(uint64_t place, unsigned char value, size_t size) { memset((void *)(uintptr_t)place, value, size); return 0; }
Result cuMemHostAlloc(void **place, size_t size, unsigned flags) { (void)flags; FATE(); *place = malloc(size); return *place ? 0 : 2; }
Result cuMemFreeHost(void *place) { free(place); return 0; }
Result cuDeviceCanAccessPeer(int *can, int device, int other) { (void)device; (void)other; *can = peers; return 0; }
Result cuCtxEnablePeerAccess(void *context, unsigned flags) { (void)context; (void)flags; FATE(); return 0; }
Result cuMemcpyPeer(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t size) {
  FATE();
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
  if (copies_fail(number_text((int)(intptr_t)from_context - 1), number_text((int)(intptr_t)to_context - 1)))
    ((char *)(uintptr_t)to)[65] ^= 1;
  return 0;
}

/* --- what the kernels mean --- */

static int whole_number(const char *kind, const uint8_t *at) { /* one operand, as a whole number */
  if (!strcmp(kind, "bf16") || !strcmp(kind, "fp16")) {
    uint16_t raw; memcpy(&raw, at, 2);
    uint16_t one = kind[0] == 'b' ? 0x3f80 : 0x3c00;
    return raw == 0 ? 0 : raw == one ? 1 : raw == (one | 0x8000) ? -1 : 99;
  }
  if (!strcmp(kind, "fp8")) return *at == 0 ? 0 : *at == 0x38 ? 1 : *at == 0xb8 ? -1 : 99;
  if (!strcmp(kind, "int8")) return (int8_t)*at;
  if (!strcmp(kind, "tf32")) { float value; memcpy(&value, at, 4); return (int)value; }
  double value; memcpy(&value, at, 8); return (int)value;
}

/* mma: PTX ISA, "Matrix Fragments for mma.m16n8k8 / k16 / k32" and "mma.m8n8k4 with .f64": which element of which
 * matrix a lane's registers hold. */
static int tensor_wrong(const char *kind, const uint8_t *operands, const void *sums) {
  int wide = !strcmp(kind, "fp64");
  int bytes = wide ? 8 : !strcmp(kind, "tf32") ? 4 : !strcmp(kind, "bf16") || !strcmp(kind, "fp16") ? 2 : 1;
  int rows = wide ? 8 : 16, depth = wide ? 4 : 32 / bytes, each = wide ? 1 : 4 / bytes, wrong = 0;
  static int a[SETS][16][32], b[SETS][32][8];
  int of_a = wide ? 1 : 4, of_b = wide ? 1 : 2, stride = (of_a + of_b) * (wide ? 8 : 4);
  for (int s = 0; s < SETS; s++)
    for (int lane = 0; lane < LANES; lane++) {
      const uint8_t *at = operands + (s * LANES + lane) * stride;
      int group_id = lane >> 2, in_group = lane % 4;
      for (int i = 0; i < of_a * each; i++, at += bytes) { /* a_i of the page */
        int row, column;
        if (wide) row = group_id, column = in_group;
        else if (bytes == 4) row = i == 0 || i == 2 ? group_id : group_id + 8, column = i < 2 ? in_group : in_group + 4;
        else if (bytes == 2) row = i < 2 || (4 <= i && i < 6) ? group_id : group_id + 8, column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        else row = i < 4 || (8 <= i && i < 12) ? group_id : group_id + 8, column = in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0);
        a[s][row][column] = whole_number(kind, at);
      }
      for (int i = 0; i < of_b * each; i++, at += bytes) { /* b_i */
        int row;
        if (wide) row = in_group;
        else if (bytes == 4) row = i == 0 ? in_group : in_group + 4;
        else if (bytes == 2) row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
        else row = in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0);
        b[s][row][group_id] = whole_number(kind, at);
      }
    }
  for (int j = 0; j < TILES; j++) {
    long d[16][8] = {{0}};
    for (int s = 0; s < SETS; s++)
      for (int r = 0; r < rows; r++)
        for (int c = 0; c < 8; c++)
          for (int k = 0; k < depth; k++) d[r][c] += INNER * a[s][r][k] * b[(s + j) % SETS][k][c];
    for (int lane = 0; lane < LANES; lane++)
      for (int i = 0; i < (wide ? 2 : 4); i++) {
        int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1), at = (j * LANES + lane) * (wide ? 2 : 4) + i;
        double want = wide ? ((const double *)sums)[at] : !strcmp(kind, "int8") ? ((const int32_t *)sums)[at] : ((const float *)sums)[at];
        wrong += d[row][column] != want * INNER;
      }
  }
  return wrong;
}

static int wmma_wrong(const uint16_t *operands, const float *sums) { /* whole matrices of 16 by 16, B column by column */
  int wrong = 0;
  for (int j = 0; j < TILES; j++)
    for (int r = 0; r < 16; r++)
      for (int c = 0; c < 16; c++) {
        long d = 0;
        for (int s = 0; s < SETS; s++)
          for (int k = 0; k < 16; k++)
            d += INNER * whole_number("fp16", (const uint8_t *)(operands + s * 256 + r * 16 + k)) *
                 whole_number("fp16", (const uint8_t *)(operands + (SETS + (s + j) % SETS) * 256 + c * 16 + k));
        wrong += d != sums[j * 256 + r * 16 + c] * INNER;
      }
  return wrong;
}

static uint32_t mix(uint32_t x) { x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ x >> 16; }
static uint64_t mix_wide(uint64_t x) { x ^= x >> 33; x *= 0xff51afd7ed558ccdull; return x ^ x >> 33; }
static uint64_t pattern(uint64_t i, uint64_t seed, uint32_t mode) {
  return mode == 2 ? 1ull << ((i + seed) & 63) : mode ? ~mix_wide(2 * i + seed) : mix_wide(2 * i + seed);
}

static void account(const char *kernel, int wrong, uint32_t *seen, uint32_t *wrongs, uint32_t spoil) {
  for (int sm = 0; sm < sms; sm++) {
    int idle = 0, differing = wrong;
    for (int number = 0; word("idle", number); number++) {
      int gpu, which;
      idle |= sscanf(word("idle", number), "%d:%d", &gpu, &which) == 2 && gpu == current && which == sm;
    }
    for (int number = 0; word("sm", number); number++) {
      static int times[64];
      int gpu, which, most = 1 << 30; char name[64];
      if (sscanf(word("sm", number), "%d:%d:%63[^:]:%d", &gpu, &which, name, &most) >= 3 && gpu == current && which == sm &&
          !strcmp(name, kernel) && times[number]++ < most) differing += 7;
    }
    if (idle) continue;
    seen[sm] += 8;
    wrongs[sm] += differing + ((uint32_t)sm == spoil);
  }
}

#define ARGUMENT(index, type) (*(type *)arguments[index])
#define PLACE(index, type) ((type *)(uintptr_t)ARGUMENT(index, uint64_t))
Result cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **arguments, void **extra) {
  (void)y; (void)z; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
  FATE();
  const char *name = function;
  if (!x || bx != 256) return 1;
  if (!strncmp(name, "tensor_", 7)) {
    if (ARGUMENT(2, uint32_t) % INNER) return 1;
    int wrong = capability < 80 ? wmma_wrong(PLACE(0, uint16_t), PLACE(1, float)) : tensor_wrong(name + 7, PLACE(0, uint8_t), PLACE(1, void));
    usleep(ARGUMENT(2, uint32_t)); /* a microsecond a round */
    account(name, wrong, PLACE(3, uint32_t), PLACE(4, uint32_t), ARGUMENT(5, uint32_t));
  } else if (!strcmp(name, "units")) {
    uint32_t value = ARGUMENT(1, uint32_t); float f = (float)(value & 0xfffff); double y_ = value;
    for (uint32_t r = 0; r < ARGUMENT(0, uint32_t); r++) {
      value = value * 1664525u + 1013904223u;
      f = fmaf(f, 3.0f, 1.0f); f = fmaf(-floorf(f * 0x1p-20f), 0x1p20f, f);
      y_ = fma(y_, 3.0, 1.0); y_ = fma(-floor(y_ * 0x1p-40), 0x1p40, y_);
    }
    int wrong = (value != ARGUMENT(2, uint32_t)) + (f != (float)ARGUMENT(3, uint32_t)) + (y_ != ARGUMENT(4, double));
    account(name, wrong, PLACE(5, uint32_t), PLACE(6, uint32_t), ARGUMENT(7, uint32_t));
  } else if (!strcmp(name, "shared_memory")) {
    if (shared < ARGUMENT(0, uint32_t) * 4) return 1;
    account(name, 0, PLACE(3, uint32_t), PLACE(4, uint32_t), ARGUMENT(5, uint32_t));
  } else if (!strcmp(name, "cache")) {
    uint32_t *place = PLACE(0, uint32_t), wrong = 0;
    for (uint32_t i = 0; i < ARGUMENT(1, uint32_t); i++)
      if (ARGUMENT(3, uint32_t)) place[i] = mix(i + ARGUMENT(2, uint32_t)); else wrong += place[i] != mix(i + ARGUMENT(2, uint32_t));
    account(name, wrong, PLACE(4, uint32_t), PLACE(5, uint32_t), ARGUMENT(6, uint32_t));
  } else if (!strcmp(name, "fill")) {
    uint64_t *place = PLACE(0, uint64_t);
    for (uint64_t i = 0; i < ARGUMENT(1, uint64_t); i++) {
      place[2 * i] = pattern(i, ARGUMENT(2, uint64_t), ARGUMENT(3, uint32_t));
      place[2 * i + 1] = ~place[2 * i];
    }
  } else if (!strcmp(name, "verify")) {
    uint64_t *place = PLACE(0, uint64_t), *found = PLACE(4, uint64_t), count = ARGUMENT(1, uint64_t);
    for (int number = 0; word("bit", number); number++) {
      int gpu, bit; unsigned long offset;
      if (sscanf(word("bit", number), "%d:%lx:%d", &gpu, &offset, &bit) == 3 && gpu == current && offset / 16 < count)
        place[offset / 8] |= 1ull << bit;
    }
    for (uint64_t i = 0; i < count; i++) {
      uint64_t want = pattern(i, ARGUMENT(2, uint64_t), ARGUMENT(3, uint32_t)), one = place[2 * i] ^ want, other = place[2 * i + 1] ^ ~want;
      if (one || other) {
        found[0]++;
        uint64_t first = i * 16 + (one ? 0 : 8);
        if (first < found[1]) found[1] = first;
        found[2] |= one | other;
      }
    }
  } else return 500;
  return 0;
}
