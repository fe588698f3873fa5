// Lab only: stands where the runtime hands work to a chip's queue, in a library that is preloaded beside the agent.
//
// It is a witness: it notes every workload that reaches a queue, with the programs in it and where they go. This is later
// than anything the agent looks at, so what the agent says can be compared with it.
//
// It is also a crutch: capturing and replaying traces and loading sub-device managers make the runtime write to queues that a
// mock chip does not have, and it dies of that. These few functions do nothing here. Everything before them is stock.
//
// All of them are virtual functions of `FDMeshCommandQueue`: the table that they are called through is filled by name, so
// what is preloaded comes first. The agent stands in for none of them. Nothing of the C++ library is used, so that none is
// loaded that the runtime does not load.

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

struct Note {
    uint64_t kind;  // 0: dispatched, 1: captured, 2: replayed
    uint64_t trace;
    void *program;
    uint64_t id;
    int64_t mesh;
    uint64_t dimensions;
    uint32_t from[4], to[4];
};

static const size_t ROOM = 65536;
static Note notes[ROOM];
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static thread_local bool recording;
static thread_local uint32_t recorded;

// What was noted since it was last asked for; -1 if that was too much.
extern "C" long lab_queue_take(Note *out, size_t room) {
    pthread_mutex_lock(&lock);
    bool all = count <= room && count < ROOM;
    long taken = all ? (long)count : -1;
    if (all) memcpy(out, notes, count * sizeof(Note));
    count = 0;
    pthread_mutex_unlock(&lock);
    return taken;
}

static void note(const Note &it) {
    pthread_mutex_lock(&lock);
    if (count < ROOM) notes[count++] = it;
    pthread_mutex_unlock(&lock);
}

// The runtime's own function of that name. Python loads the runtime with a scope of its own, so it is asked by its handle.
static void *runtime(const char *name) {
    void *handle = nullptr;
    auto look = [](dl_phdr_info *info, size_t, void *out) {
        const char *file = strrchr(info->dlpi_name, '/');
        if (file && !strncmp(file, "/libtt_metal.so", 15)) *(void **)out = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        return 0;
    };
    dl_iterate_phdr(look, &handle);
    return dlsym(handle, name);
}

struct Coordinates {
    const uint32_t *begin;
    size_t count;
};

struct Node {
    Node *next;
    char range[240];
    void *program;
};

// A map from ranges of the mesh to programs.
struct Programs {
    void *buckets;
    size_t bucket_count;
    Node *first;
    size_t count;
};

static void note_workload(void *queue, void *workload) {
    static auto programs = (Programs * (*)(void *)) runtime("_ZN2tt8tt_metal11distributed12MeshWorkload12get_programsEv");
    static auto id = (uint64_t(*)(void *))runtime("_ZNK2tt8tt_metal6detail11ProgramImpl6get_idEv");
    static auto mesh_id = (int (*)(void *))runtime("_ZNK2tt8tt_metal11distributed10MeshDevice2idEv");
    static auto first = (void *(*)(void *))runtime("_ZNK2tt8tt_metal11distributed19MeshCoordinateRange11start_coordEv");
    static auto last = (void *(*)(void *))runtime("_ZNK2tt8tt_metal11distributed19MeshCoordinateRange9end_coordEv");
    static auto coordinates = (Coordinates(*)(void *))runtime("_ZNK2tt8tt_metal11distributed14MeshCoordinate6coordsEv");
    void *mesh = ((void **)queue)[1];
    for (Node *node = programs(workload)->first; node; node = node->next) {
        Note it = {};
        it.kind = recording;
        it.trace = recorded;
        it.program = node->program;
        it.id = id(node->program);
        it.mesh = mesh_id(mesh);
        Coordinates from = coordinates(first(node->range)), to = coordinates(last(node->range));
        it.dimensions = from.count;
        for (size_t n = 0; n < from.count && n < 4; n++) {
            it.from[n] = from.begin[n];
            it.to[n] = to.begin[n];
        }
        note(it);
    }
}

#define QUEUE "_ZN2tt8tt_metal11distributed18FDMeshCommandQueue"
#define TRACE "RKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE"
#define STANDS_FOR(name, parameters, mangled) \
    extern "C" void name parameters __asm__(mangled); \
    void name parameters
#define RECORD_BEGIN QUEUE "12record_beginE" TRACE "RKSt10shared_ptrINS1_19MeshTraceDescriptorEE"
#define RECORD_END QUEUE "10record_endEv"
#define ENQUEUE_TRACE QUEUE "13enqueue_traceE" TRACE "b"
#define ENQUEUE QUEUE "21enqueue_mesh_workloadERNS1_12MeshWorkloadEb"
#define RESET QUEUE "18reset_worker_stateEbj"

STANDS_FOR(record_begin, (void *queue, const uint32_t *trace, void *descriptor), RECORD_BEGIN) {
    static auto real = (void (*)(void *, const uint32_t *, void *))runtime(RECORD_BEGIN);
    recording = true;
    recorded = *trace;
    real(queue, trace, descriptor);
}

STANDS_FOR(record_end, (void *queue), RECORD_END) {
    static auto real = (void (*)(void *))runtime(RECORD_END);
    recording = false;
    recorded = 0;
    real(queue);
}

STANDS_FOR(enqueue_trace, (void *queue, const uint32_t *trace, bool), ENQUEUE_TRACE) {
    (void)queue;
    Note it = {};
    it.kind = 2;
    it.trace = *trace;
    note(it);
}

STANDS_FOR(enqueue_mesh_workload, (void *queue, void *workload, bool blocking), ENQUEUE) {
    static auto real = (void (*)(void *, void *, bool))runtime(ENQUEUE);
    if (!recording) real(queue, workload, blocking);
    // It has returned: nothing was thrown.
    note_workload(queue, workload);
}

// Of 0.81.1, and of 0.76.0.
STANDS_FOR(reset_new, (void *), RESET "RKSt6vectorISt4pairINS0_12CoreRangeSetEjESaIS6_EESt4spanIKjLm18446744073709551615EE") {}
STANDS_FOR(reset_old, (void *),
    RESET "RKSt6vectorIjN4ttsl17aligned_allocatorIjLm16EEEERKS3_ISt4pairINS0_12CoreRangeSetEjESaISC_EESt4spanIKjLm18446744073709551615EE") {}
