/* A stand-in for libnvidia-ml.so.1: two GPUs (or STUB_GPUS), the second without energy counter and
   clocks. Each draws 100 W, and its energy counter goes on when the agent is started again. While
   there is a file STUB_GONE, the driver is not loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct { int index; } *nvmlDevice_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, DRIVER_NOT_LOADED = 9 };
static struct { int index; } devices[16];
static unsigned long long calls;

static unsigned int gpus(void) {
    const char *asked = getenv("STUB_GPUS");
    return asked ? (unsigned int)atoi(asked) : 2;
}
static int gone(void) {
    const char *file = getenv("STUB_GONE");
    return file && access(file, F_OK) == 0;
}
#define HERE if (gone()) return DRIVER_NOT_LOADED

nvmlReturn_t nvmlInit_v2(void) { HERE; return SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { (void)flags; HERE; return SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t result) {
    if (result == DRIVER_NOT_LOADED) return "Driver Not Loaded";
    return result == NO_PERMISSION ? "Insufficient Permissions" : "Not Supported";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) { snprintf(version, length, "550.00"); return SUCCESS; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { *count = gpus(); return SUCCESS; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index >= gpus() || index > 15) return INVALID_ARGUMENT;
    devices[index].index = (int)index;
    *device = (nvmlDevice_t)&devices[index];
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    (void)device; snprintf(name, length, "Tesla V100-SXM2-16GB"); return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    snprintf(uuid, length, "GPU-%d", device->index); return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
    HERE;
    *power = 100000 + 1000 * device->index + (unsigned int)(calls++ % 50); return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    HERE;
    if (device->index == 1) return NOT_SUPPORTED;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *energy = 100ULL * (now.tv_sec * 1000ULL + now.tv_nsec / 1000000ULL); /* 100 W, as above */
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    HERE;
    (void)device; rates->gpu = 42; rates->memory = 10; return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    HERE;
    (void)device; memory->total = 16ULL << 30; memory->used = 4ULL << 30; memory->free = 12ULL << 30; return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *temperature) {
    HERE;
    (void)device; (void)sensor; *temperature = 55; return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned int *clock) {
    HERE;
    (void)type;
    if (device->index == 1) return NOT_SUPPORTED;
    *clock = 1380; return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    HERE;
    (void)device; *reasons = 4; return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, void *processes) {
    (void)device; (void)count; (void)processes; return NO_PERMISSION;
}
