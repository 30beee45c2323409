/* A libnvidia-ml.so.1 that says what a scenario file tells it, for tests under NVIDIA's own Python binding.
 *
 * The file is named by NHC_FAKE_NVML. Its lines are
 *
 *     KEY WORDS...            for the library:  init, driver, nvml, devices, p2p.A.B.CAPABILITY, starts, calls
 *     N.KEY WORDS...          for device N
 *     *.KEY WORDS...          for every device without a line of its own
 *     include FILE            another file of the same directory, whose lines these override
 *
 * and `error CODE` in place of the words makes the query return that nvmlReturn_t. A query without a line
 * returns NVML_ERROR_NOT_SUPPORTED, as NVML does where a device has no such thing. `init hang` and
 * `init crash` do what they say. `N.lost` and `N.reset` make every query of the device fail.
 *
 * Structures and values are nvml.h's, written from NVIDIA's API reference and the binding's declarations.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, LOST = 15, RESET = 16, VERSION = 25 };

typedef struct { char key[80]; char value[400]; } line_t;
typedef struct { int index; } device_t;

static line_t lines[8192];
static int count;
static device_t devices[64];

static void load(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "fake NVML: cannot read %s\n", path);
        abort();
    }
    char text[600];
    while (fgets(text, sizeof text, file)) {
        char *hash = strchr(text, '#');
        if (hash) *hash = 0;
        char key[80], value[400] = "";
        if (sscanf(text, "%79s %399[^\n]", key, value) < 1) continue;
        if (!strcmp(key, "include")) {
            char beside[1024];
            const char *slash = strrchr(path, '/');
            snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, value);
            size_t end = strlen(beside);
            while (end && (beside[end - 1] == ' ' || beside[end - 1] == '\r')) beside[--end] = 0;
            load(beside);
            continue;
        }
        if (count == 8192) abort();
        snprintf(lines[count].key, sizeof lines[count].key, "%s", key);
        snprintf(lines[count].value, sizeof lines[count].value, "%s", value);
        count++;
    }
    fclose(file);
}

/* The last line for `key`; one for the device itself comes before one for all devices. */
static const char *find(const device_t *device, const char *key) {
    char own[96], all[96];
    snprintf(own, sizeof own, "%d.%s", device ? device->index : 0, key);
    snprintf(all, sizeof all, "*.%s", key);
    for (int pass = 0; pass < 2; pass++) {
        const char *wanted = !device ? key : pass ? all : own;
        for (int i = count - 1; i >= 0; i--)
            if (!strcmp(lines[i].key, wanted)) return lines[i].value;
    }
    return NULL;
}

static int failure(const char *value) {
    int code;
    if (!value) return NOT_SUPPORTED;
    return sscanf(value, "error %d", &code) == 1 ? code : OK;
}

/* What a query of `device` for `key` says, or the error it ends in. */
static int query(const device_t *device, const char *key, const char **value) {
    if (device && find(device, "lost")) return LOST;
    if (device && find(device, "reset")) return RESET;
    *value = find(device, key);
    return failure(*value);
}

static int number(const device_t *device, const char *key, unsigned *out) {
    const char *value;
    int ret = query(device, key, &value);
    if (!ret) *out = (unsigned)strtoul(value, NULL, 0);
    return ret;
}

static int large(const device_t *device, const char *key, unsigned long long *out) {
    const char *value;
    int ret = query(device, key, &value);
    if (!ret) *out = strtoull(value, NULL, 0);
    return ret;
}

static int two(const device_t *device, const char *key, unsigned *one, unsigned *other) {
    const char *value;
    int ret = query(device, key, &value);
    if (!ret && sscanf(value, "%u %u", one, other) != 2) abort();
    return ret;
}

static int text(const device_t *device, const char *key, char *out, unsigned size) {
    const char *value;
    int ret = query(device, key, &value);
    if (ret) return ret;
    if (strlen(value) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return OK;
}

/* Appends the name of each call to the file of the scenario's line `calls FILE` (-finstrument-functions; libc has its own). */
static char calls[400];
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function, void *site) {
    (void)site;
    Dl_info info;
    if (!calls[0] || !dladdr(function, &info) || info.dli_saddr != function) return;
    FILE *file = fopen(calls, "a");
    if (file) { fprintf(file, "%s\n", info.dli_sname); fclose(file); }
}
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *site) {
    (void)function; (void)site;
}

#define API __attribute__((visibility("default"))) int

API nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *path = getenv("NHC_FAKE_NVML");
    count = 0;
    if (!path) return 12;
    load(path);
    const char *named = find(NULL, "calls");
    snprintf(calls, sizeof calls, "%s", named ? named : "");
    const char *said = find(NULL, "init"), *starts = find(NULL, "starts"), *takes = find(NULL, "start_ms");
    FILE *counted = starts ? fopen(starts, "a") : NULL;
    if (counted) { fputc('x', counted); fclose(counted); }
    if (takes) usleep(1000u * (unsigned)atoi(takes));
    if (said && !strcmp(said, "hang")) for (;;) pause();
    if (said && !strcmp(said, "crash")) abort();
    for (int i = 0; i < 64; i++) devices[i].index = i;
    return said ? failure(said) : OK;
}
/* A GPU that was taken out, and put back: lines added to the scenario, so that the next process sees it too. */
static void note(const device_t *device, const char *key, const char *value) {
    FILE *file = fopen(getenv("NHC_FAKE_NVML"), "a");
    if (!file) abort();
    fprintf(file, "%d.%s %s\n", device->index, key, value);
    fclose(file);
    if (count == 8192) abort();
    snprintf(lines[count].key, sizeof lines[count].key, "%d.%s", device->index, key);
    snprintf(lines[count++].value, sizeof lines[count].value, "%s", value);
}
static int is(const device_t *device, const char *key) {
    const char *said = find(device, key);
    return said && atoi(said);
}
API nvmlShutdown(void) { return OK; }
__attribute__((visibility("default"))) const char *nvmlErrorString(int code) { (void)code; return "fake"; }
API nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(NULL, "driver", out, size); }
API nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(NULL, "nvml", out, size); }
API nvmlDeviceGetCount_v2(unsigned *out) {
    unsigned all = 0;
    int ret = number(NULL, "devices", &all);
    *out = all;
    for (unsigned i = 0; i < all && i < 64; i++) *out -= is(&devices[i], "removed");
    return ret;
}
API nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **out) {
    unsigned all = 0;
    number(NULL, "devices", &all);
    for (unsigned i = 0; i <= index && i < all && i < 64; i++) index += is(&devices[i], "removed");
    if (index >= all || index >= 64) return INVALID;
    const char *said = find(&devices[index], "handle");
    if (said && failure(said)) return failure(said);
    *out = &devices[index];
    return OK;
}

typedef struct {
    char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32];
} pci_t;

static int pci(const char *value, pci_t *out) {
    unsigned function = 0;
    memset(out, 0, sizeof *out);
    if (sscanf(value, "%x:%x:%x.%x", &out->domain, &out->bus, &out->device, &function) != 4) abort();
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.%X", out->domain, out->bus, out->device, function);
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.%X", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff, function & 7);
    return OK;
}
static device_t *placed(const pci_t *at) {
    unsigned all = 0;
    number(NULL, "devices", &all);
    for (unsigned i = 0; i < all && i < 64; i++) {
        const char *value = find(&devices[i], "pci");
        pci_t its;
        if (value && !pci(value, &its) && its.domain == at->domain && its.bus == at->bus && its.device == at->device)
            return &devices[i];
    }
    return NULL;
}
API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, device_t **out) {
    pci_t at;
    pci(bus_id, &at);
    *out = placed(&at);
    return !*out || is(*out, "removed") ? 6 : OK;
}
API nvmlDeviceSetPersistenceMode(device_t *d, unsigned mode) {
    note(d, "persistence", mode ? "1" : "0");
    return OK;
}
API nvmlDeviceModifyDrainState(pci_t *at, unsigned state) {
    device_t *d = placed(at);
    if (!d) return INVALID;
    if (state && is(d, "persistence")) return 19; /* IN_USE: persistence mode counts as an attachment */
    note(d, "drained", state ? "1" : "0");
    return OK;
}
API nvmlDeviceRemoveGpu(pci_t *at) {
    device_t *d = placed(at);
    const char *held = d ? find(d, "processes") : NULL;
    if (!d || !is(d, "drained")) return INVALID;
    if (held && strcmp(held, "none")) return 19;
    note(d, "removed", "1");
    return OK;
}
API nvmlDeviceDiscoverGpus(pci_t *at) {
    device_t *d = placed(at);
    const char *said = d ? find(d, "discover") : NULL;
    if (!d) return INVALID;
    if (said && failure(said)) return failure(said);
    note(d, "removed", "0");
    return OK;
}
API nvmlDeviceGetPciInfo_v3(device_t *d, pci_t *out) {
    const char *value;
    int ret = query(d, "pci", &value);
    return ret ? ret : pci(value, out);
}

#define TEXT(name, key) API name(device_t *d, char *out, unsigned size) { return text(d, key, out, size); }
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")

#define NUMBER(name, key) API name(device_t *d, unsigned *out) { return number(d, key, out); }
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetPowerUsage, "power_usage")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays")

#define TWO(name, key) API name(device_t *d, unsigned *one, unsigned *other) { return two(d, key, one, other); }
TWO(nvmlDeviceGetEccMode, "ecc_mode")
TWO(nvmlDeviceGetMigMode, "mig_mode")
TWO(nvmlDeviceGetPowerManagementLimitConstraints, "power_range")

typedef struct { unsigned gpu, memory; } utilization_t;
API nvmlDeviceGetUtilizationRates(device_t *d, utilization_t *out) { return two(d, "utilization", &out->gpu, &out->memory); }
API nvmlDeviceGetTemperature(device_t *d, unsigned sensor, unsigned *out) {
    return sensor ? INVALID : number(d, "temperature", out);
}
static int indexed(device_t *d, const char *stem, unsigned which, unsigned *out) {
    char key[64];
    snprintf(key, sizeof key, "%s.%u", stem, which);
    return number(d, key, out);
}
API nvmlDeviceGetTemperatureThreshold(device_t *d, unsigned which, unsigned *out) { return indexed(d, "limit", which, out); }
API nvmlDeviceGetClockInfo(device_t *d, unsigned which, unsigned *out) { return indexed(d, "clock", which, out); }
API nvmlDeviceGetApplicationsClock(device_t *d, unsigned which, unsigned *out) { return indexed(d, "application_clock", which, out); }
API nvmlDeviceGetDefaultApplicationsClock(device_t *d, unsigned which, unsigned *out) { return indexed(d, "default_clock", which, out); }
API nvmlDeviceGetCurrentClocksEventReasons(device_t *d, unsigned long long *out) { return large(d, "reasons", out); }
API nvmlDeviceGetCurrentClocksThrottleReasons(device_t *d, unsigned long long *out) { return large(d, "throttle_reasons", out); }

typedef struct { unsigned version; int margin; } margin_t;
API nvmlDeviceGetMarginTemperature(device_t *d, margin_t *out) {
    const char *value;
    if (out->version != 0x1000008) return VERSION;
    int ret = query(d, "margin", &value);
    if (!ret) out->margin = atoi(value);
    return ret;
}

typedef struct { unsigned long long total, unused, used; } memory_t;
API nvmlDeviceGetMemoryInfo(device_t *d, memory_t *out) {
    const char *value;
    int ret = query(d, "memory", &value);
    if (!ret && sscanf(value, "%llu %llu", &out->total, &out->used) != 2) abort();
    if (!ret) out->unused = out->total - out->used;
    return ret;
}

API nvmlDeviceGetRemappedRows(device_t *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    const char *value;
    int ret = query(d, "row_remap", &value);
    if (!ret && sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) != 4) abort();
    return ret;
}
API nvmlDeviceGetRowRemapperHistogram(device_t *d, unsigned out[5]) {
    const char *value;
    int ret = query(d, "row_banks", &value); /* max, high, partial, low, none */
    if (!ret && sscanf(value, "%u %u %u %u %u", out, out + 1, out + 2, out + 3, out + 4) != 5) abort();
    return ret;
}
API nvmlDeviceGetRetiredPages(device_t *d, unsigned cause, unsigned *size, unsigned long long *pages) {
    unsigned found = 0;
    int ret = number(d, cause ? "retired_double" : "retired_single", &found);
    if (ret) return ret;
    unsigned room = *size;
    *size = found;
    if (room < found) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found && pages; i++) pages[i] = 0x1000ull * (i + 1);
    return OK;
}

API nvmlDeviceGetMemoryErrorCounter(device_t *d, unsigned kind, unsigned counter, unsigned location, unsigned long long *out) {
    char key[64];
    if (kind > 1 || counter > 1 || location > 7) return INVALID;
    const char *place = location == 2 ? "dram" : location == 7 ? "sram" : NULL;
    if (!place) return NOT_SUPPORTED;
    snprintf(key, sizeof key, "%s.%s.%s", place, counter ? "aggregate" : "volatile", kind ? "uncorrected" : "corrected");
    return large(d, key, out);
}
typedef struct {
    unsigned version;
    unsigned long long agg_parity, agg_secded, agg_cor, vol_parity, vol_secded, vol_cor, l2, sm, pcie, mcu, other;
    unsigned exceeded;
} sram_t;
API nvmlDeviceGetSramEccErrorStatus(device_t *d, sram_t *out) {
    const char *value;
    if (out->version != 0x1000068) return VERSION;
    int ret = query(d, "sram_status", &value);
    if (!ret && sscanf(value, "%llu %llu %llu %llu %llu %llu %u", &out->agg_parity, &out->agg_secded, &out->agg_cor,
                       &out->vol_parity, &out->vol_secded, &out->vol_cor, &out->exceeded) != 7) abort();
    return ret;
}

typedef struct {
    uint32_t id, scope; int64_t timestamp, latency; unsigned type; int ret;
    union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long ll; int i; unsigned short us; } value;
} field_t;
API nvmlDeviceGetFieldValues(device_t *d, int size, field_t *values) {
    if (find(d, "lost")) return LOST;
    if (find(d, "reset")) return RESET;
    for (int i = 0; i < size; i++) {
        char key[64], kind[8];
        long long number;
        snprintf(key, sizeof key, "field.%u.%u", values[i].id, values[i].scope);
        const char *value = find(d, key);
        if (!value) {
            snprintf(key, sizeof key, "field.%u", values[i].id);
            value = find(d, key);
        }
        values[i].ret = failure(value);
        if (values[i].ret) continue;
        if (sscanf(value, "%7s %lld", kind, &number) != 2) abort();
        values[i].type = !strcmp(kind, "u32") ? 1 : !strcmp(kind, "u64") ? 3 : !strcmp(kind, "s32") ? 5 : 4;
        if (values[i].type == 1) values[i].value.u = (unsigned)number;
        else if (values[i].type == 5) values[i].value.i = (int)number;
        else values[i].value.ll = number;
    }
    return OK;
}

/* fabric: STATE STATUS CLIQUE MASK SUMMARY, cluster of 16 equal bytes; fabric_version: the newest form known. */
static int fabric(device_t *d, unsigned char *uuid, int *status, uint32_t *clique, unsigned char *state, uint32_t *mask, unsigned char *summary) {
    const char *value;
    unsigned s, c, m, h, byte = 0;
    int st, ret = query(d, "fabric", &value);
    if (ret) return ret;
    if (sscanf(value, "%u %d %u %x %u", &s, &st, &c, &m, &h) != 5) abort();
    number(d, "fabric_cluster", &byte);
    memset(uuid, (int)byte, 16);
    *status = st, *clique = c, *state = (unsigned char)s;
    if (mask) *mask = m;
    if (summary) *summary = (unsigned char)h;
    return OK;
}
typedef struct { unsigned char uuid[16]; int status; uint32_t clique; unsigned char state; } fabric1_t;
typedef struct { unsigned version; unsigned char uuid[16]; int status; uint32_t clique; unsigned char state; uint32_t mask; } fabric2_t;
typedef struct { unsigned version; unsigned char uuid[16]; int status; uint32_t clique; unsigned char state; uint32_t mask; unsigned char summary; } fabric3_t;
API nvmlDeviceGetGpuFabricInfo(device_t *d, fabric1_t *out) {
    return fabric(d, out->uuid, &out->status, &out->clique, &out->state, NULL, NULL);
}
API nvmlDeviceGetGpuFabricInfoV(device_t *d, fabric3_t *out) {
    unsigned newest = 3;
    number(d, "fabric_version", &newest);
    if (newest < 2) return 13;
    if (out->version == 0x3000028 && newest >= 3)
        return fabric(d, out->uuid, &out->status, &out->clique, &out->state, &out->mask, &out->summary);
    if (out->version == 0x2000024) {
        fabric2_t *two_ = (fabric2_t *)out;
        return fabric(d, two_->uuid, &two_->status, &two_->clique, &two_->state, &two_->mask, NULL);
    }
    return VERSION;
}

/* links: how many the device has. link.K.THING for one of them, link.THING for the others. */
static int link_value(device_t *d, unsigned link, const char *thing, const char **value) {
    unsigned all = 0;
    int ret = number(d, "links", &all);
    if (ret) return ret;
    if (link >= all) return INVALID;
    char key[64];
    snprintf(key, sizeof key, "link.%u.%s", link, thing);
    *value = find(d, key);
    if (!*value) {
        snprintf(key, sizeof key, "link.%s", thing);
        *value = find(d, key);
    }
    return failure(*value);
}
API nvmlDeviceGetNvLinkState(device_t *d, unsigned link, unsigned *out) {
    const char *value;
    int ret = link_value(d, link, "state", &value);
    if (!ret) *out = (unsigned)atoi(value);
    return ret;
}
API nvmlDeviceGetNvLinkErrorCounter(device_t *d, unsigned link, unsigned counter, unsigned long long *out) {
    static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    const char *value;
    if (counter > 4) return INVALID;
    int ret = link_value(d, link, names[counter], &value);
    if (!ret) *out = strtoull(value, NULL, 0);
    return ret;
}
API nvmlDeviceGetNvLinkRemoteDeviceType(device_t *d, unsigned link, unsigned *out) {
    const char *value;
    int ret = link_value(d, link, "remote_type", &value);
    if (!ret) *out = (unsigned)atoi(value);
    return ret;
}
API nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t *d, unsigned link, pci_t *out) {
    const char *value;
    int ret = link_value(d, link, "remote", &value);
    return ret ? ret : pci(value, out);
}

/* event.K DEVICE MODULE CODE CATEGORY SEVERITY GROUP XID (-1: none), each once, in order; none without `events 1`. */
typedef struct { char uuid[96]; unsigned level, severity; } event_config_t;
typedef struct {
    unsigned timeout, type; char uuid[96], module[16];
    unsigned long long event_type, data, cursor, instance, time, trace;
    unsigned gpu_instance, compute_instance, severity, category, code, scope, originator, module_instance, chiplet, level,
        attributes, cper_size, group; unsigned char group_size, group_index;
} wait3_t;
typedef struct { unsigned index, kind, source_kind, size; unsigned short version; } context_t;
_Static_assert(sizeof(event_config_t) == 104 && sizeof(wait3_t) == 224 && sizeof(context_t) == 20, "nvml.h of R615");
static unsigned next_event, least_severity;
static int event_xid;
API nvmlEventSetCreate(void **set) { *set = &next_event; return OK; }
API nvmlEventSetRegisterGpuOperationalEvents_v1(void *set, const event_config_t *config) {
    unsigned there = 0;
    if (set != &next_event || strncmp(config->uuid, "GPU-", 4)) return INVALID;
    least_severity = config->severity;
    return number(NULL, "events", &there) || !there ? NOT_SUPPORTED : OK;
}
API nvmlEventSetWait_v3(void *set, wait3_t *out) {
    char key[32], module[17];
    unsigned device;
    (void)set;
    snprintf(key, sizeof key, "event.%u", next_event);
    const char *value = find(NULL, key), *uuid;
    unsigned wait = out->timeout;
    if (!value) { usleep(wait * 1000); return 10; }
    memset(out, 0, sizeof *out);
    if (sscanf(value, "%u %16s %x %u %u %x %d", &device, module, &out->code, &out->category, &out->severity, &out->group, &event_xid) != 7)
        abort();
    next_event++;
    if (out->severity < least_severity) return 10;
    out->type = 1;
    memcpy(out->module, module, strlen(module) < 16 ? strlen(module) : 16); /* no NUL where it is full */
    if (query(&devices[device], "uuid", &uuid)) return LOST;
    snprintf(out->uuid, sizeof out->uuid, "%s", uuid);
    return OK;
}
API nvmlEventSetGetContextCount_v1(void *set, unsigned *out) { (void)set; *out = event_xid < 0 ? 1 : 2; return OK; }
API nvmlEventSetGetContextInfo_v1(void *set, context_t *about) {
    (void)set;
    about->kind = about->index == 1; /* the first is of a kind without a public meaning */
    return about->index > 1 ? INVALID : OK;
}
API nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(void *set, unsigned *index_and_xid) {
    (void)set;
    index_and_xid[1] = (unsigned)event_xid;
    return index_and_xid[0] == 1 ? OK : INVALID;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process_t;
API nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *size, process_t *out) {
    const char *value;
    int ret = query(d, "processes", &value); /* PID:BYTES PID:BYTES ... or none */
    if (ret) return ret;
    unsigned found = 0, room = *size;
    char copy[400];
    snprintf(copy, sizeof copy, "%s", value);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        unsigned pid;
        unsigned long long bytes;
        if (sscanf(word, "%u:%llu", &pid, &bytes) != 2) continue;
        if (found < room) out[found] = (process_t){pid, bytes, 0xffffffffu, 0xffffffffu};
        found++;
    }
    *size = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

API nvmlDeviceValidateInforom(device_t *d) {
    const char *value;
    return query(d, "inforom_valid", &value);
}
API nvmlDeviceGetP2PStatus(device_t *one, device_t *other, unsigned capability, unsigned *out) {
    char key[64];
    int low = one->index < other->index ? one->index : other->index;
    int high = one->index < other->index ? other->index : one->index;
    if (capability > 5) return INVALID;
    if (find(one, "lost") || find(other, "lost")) return LOST;
    snprintf(key, sizeof key, "p2p.%d.%d.%u", low, high, capability);
    const char *value = find(NULL, key);
    if (!value) {
        snprintf(key, sizeof key, "p2p.%u", capability);
        value = find(NULL, key);
    }
    if (failure(value)) return failure(value);
    *out = (unsigned)atoi(value);
    return OK;
}
