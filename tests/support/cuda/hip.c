/* A libamdhip64.so with hiprtc in it, as ROCm 5 has it, without a GPU: the calls that the proof makes, on top of cuda.c.
 *
 * Waves of 64 lanes multiply by MFMA, laid out as AMD's matrix_calculator.py says. FAKE_CUDA takes besides cuda.c's words:
 *   gpus=2  arch=gfx942  partitions=1  integrated=0  compiles=1  nobody=0
 * nobody=1: the sums that every lane finds are others than the host's. -DHIP_HEADER compiles it with HIP's own header. */
#ifdef HIP_HEADER
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#else
typedef int hipError_t, hiprtcResult, hipDevice_t, hipDeviceAttribute_t;
typedef void *hipModule_t, *hipFunction_t, *hipStream_t, *hipDeviceptr_t, *hiprtcProgram;
#endif
#include "cuda.c"

static const char *architecture(void) { return word("arch", 0) ? word("arch", 0) : "gfx942"; }

hipError_t hipInit(unsigned int flags) {
  (void)flags;
  if (getenv("CUDA_VISIBLE_DEVICES") || getenv("HIP_VISIBLE_DEVICES") || getenv("ROCR_VISIBLE_DEVICES")) return 101;
  read_words();
  seen_gpus = whole("gpus", 2) * whole("partitions", 1);
  for (int gpu = 0; gpu < seen_gpus; gpu++) visible[gpu] = gpu / whole("partitions", 1);
  current = 0;
  FATE();
  return 0;
}
const char *hipGetErrorName(hipError_t code) {
  return code == 2 ? "hipErrorOutOfMemory" : code == 214 ? "hipErrorECCNotCorrectable" : code == 719 ? "hipErrorLaunchFailure" : "hipErrorUnknown";
}
hipError_t hipGetDeviceCount(int *count) { FATE(); *count = seen_gpus; return 0; }
hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device) {
  (void)device;
  snprintf(name, length, "AMD Instinct %s", whole("integrated", 0) ? "MI300A" : "MI300X");
  return 0;
}
hipError_t hipDeviceGetPCIBusId(char *name, int length, int device) {
  static const char *bus[] = {"05", "26", "46", "65", "85", "a6", "c6", "e5"};
  snprintf(name, length, "0000:%s:00.0", bus[visible[device] % 8]);
  return 0;
}
hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device) {
  (void)device;
  switch ((int)attribute) {
    case 16: *value = whole("integrated", 0); return 0;
    case 19: *value = 1 << 20; return 0;
    case 23: *value = 9; return 0;
    case 61: *value = 4; return 0;
    case 63: *value = sms; return 0;
    case 74: *value = 64 << 10; return 0;
  }
  return 1;
}
hipError_t hipSetDevice(int device) { current = visible[device]; FATE(); return 0; }
hipError_t hipDeviceReset(void) { return 0; }
hipError_t hipDeviceSynchronize(void) { FATE(); return 0; }
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) { return cuMemGetInfo_v2(free_bytes, total); }
hipError_t hipMalloc(void **place, size_t size) { FATE(); return cuMemAlloc_v2((uint64_t *)place, size); }
hipError_t hipFree(void *place) { return cuMemFree_v2((uintptr_t)place); }
hipError_t hipMemset(void *place, int value, size_t size) { memset(place, value, size); return 0; }
hipError_t hipMemcpyHtoD(hipDeviceptr_t place, void *data, size_t size) { FATE(); return cuMemcpyHtoD_v2((uintptr_t)place, data, size); }
hipError_t hipMemcpyDtoH(void *data, hipDeviceptr_t place, size_t size) { FATE(); return cuMemcpyDtoH_v2(data, (uintptr_t)place, size); }
hipError_t hipHostMalloc(void **place, size_t size, unsigned int flags) { FATE(); return cuMemHostAlloc(place, size, flags); }
hipError_t hipHostFree(void *place) { return cuMemFreeHost(place); }
hipError_t hipDeviceCanAccessPeer(int *can, int device, int other) { return cuDeviceCanAccessPeer(can, device, other); }
hipError_t hipDeviceEnablePeerAccess(int device, unsigned int flags) { (void)device; (void)flags; FATE(); return 0; }
hipError_t hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size) {
  return cuMemcpyPeer((uintptr_t)to, (void *)(intptr_t)(visible[to_device] + 1), (uintptr_t)from, (void *)(intptr_t)(visible[from_device] + 1), size);
}

/* --- hiprtc: the code is the name of the architecture, and the source --- */

struct program { char *source, *code; };
hiprtcResult hiprtcCreateProgram(hiprtcProgram *made, const char *source, const char *name, int headers, const char **texts, const char **names) {
  (void)name; (void)texts; (void)names;
  if (headers || !strstr(source, "__HIP__")) return 3;
  struct program *program = calloc(1, sizeof *program);
  program->source = strdup(source);
  *made = (hiprtcProgram)program;
  return 0;
}
hiprtcResult hiprtcCompileProgram(hiprtcProgram of, int count, const char **options) {
  struct program *program = (void *)of;
  if (count != 1 || strncmp(options[0], "--offload-arch=gfx", 18) || !whole("compiles", 1)) return 6;
  program->code = malloc(strlen(program->source) + 32);
  sprintf(program->code, "\177ELF%s\n%s", options[0] + 15, program->source);
  return 0;
}
hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram of, size_t *size) { (void)of; *size = 64; return 0; }
hiprtcResult hiprtcGetProgramLog(hiprtcProgram of, char *log) {
  (void)of;
  snprintf(log, 64, "warning: much\ngpu_proof.hip:4:2: error: no such thing\n");
  return 0;
}
hiprtcResult hiprtcGetCodeSize(hiprtcProgram of, size_t *size) { *size = strlen(((struct program *)of)->code) + 1; return 0; }
hiprtcResult hiprtcGetCode(hiprtcProgram of, char *code) { strcpy(code, ((struct program *)of)->code); return 0; }
hiprtcResult hiprtcDestroyProgram(hiprtcProgram *of) { free(((struct program *)*of)->source); return 0; }

hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
  FATE();
  const char *code = image;
  if (strncmp(code, "\177ELF", 4) || strncmp(code + 4, architecture(), strlen(architecture()))) return 209;
  *module = (hipModule_t)image;
  return 0;
}
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  if (!strstr((const char *)module, name)) return 500;
  *function = (hipFunction_t)strdup(name);
  return 0;
}

/* v_mfma_*_16x16x*: lane l has of row (or column) l % 16 of A (or B) a quarter of the depth. Of D it has column l % 16 and
 * four rows: 4 * (l / 16) + i, of fp64 4 * i + l / 16. */
static int wave_wrong(const char *kind, const uint8_t *operands, const void *sums) {
  int gfx90a = !strcmp(architecture(), "gfx90a"), fnuz = !strcmp(architecture(), "gfx942") && !strcmp(kind, "fp8"), wrong = 0;
  int bytes = !strcmp(kind, "fp64") ? 8 : !strcmp(kind, "tf32") ? 4 : !strcmp(kind, "bf16") || !strcmp(kind, "fp16") ? 2 : 1;
  int part = !strcmp(kind, "fp64") ? 1 : !strcmp(kind, "int8") && gfx90a ? 4 : 8 / bytes;
  static int of[2][SETS][16][32];
  for (int s = 0; s < SETS; s++)
    for (int lane = 0; lane < 64; lane++)
      for (int matrix = 0; matrix < 2; matrix++)
        for (int i = 0; i < part; i++, operands += bytes)
          of[matrix][s][lane % 16][lane / 16 * part + i] =
              fnuz ? (*operands == 0x40) - (*operands == 0xc0) : whole_number(kind, operands);
  for (int j = 0; j < TILES; j++)
    for (int lane = 0; lane < 64; lane++)
      for (int i = 0; i < 4; i++) {
        int row = bytes == 8 ? 4 * i + lane / 16 : 4 * (lane / 16) + i, at = (j * 64 + lane) * 4 + i;
        long d = whole("nobody", 0);
        for (int s = 0; s < SETS; s++)
          for (int k = 0; k < 4 * part; k++) d += INNER * of[0][s][row][k] * of[1][(s + j) % SETS][lane % 16][k];
        double want = bytes == 8 ? ((const double *)sums)[at] : !strcmp(kind, "int8") ? ((const int32_t *)sums)[at] : ((const float *)sums)[at];
        wrong += d != want * INNER;
      }
  return wrong;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int x, unsigned int y, unsigned int z, unsigned int bx, unsigned int by,
                                 unsigned int bz, unsigned int shared, hipStream_t stream, void **arguments, void **extra) {
  FATE();
  const char *name = (const char *)function;
  if (strncmp(name, "tensor_", 7)) return cuLaunchKernel((void *)function, x, y, z, bx, by, bz, shared, stream, arguments, extra);
  if (!x || bx != 256 || ARGUMENT(2, uint32_t) % INNER) return 1;
  usleep(ARGUMENT(2, uint32_t));
  account(name, wave_wrong(name + 7, PLACE(0, uint8_t), PLACE(1, void)), PLACE(3, uint32_t), PLACE(4, uint32_t), ARGUMENT(5, uint32_t));
  return 0;
}
