// For the lab only: replaces functions of a chip's command queue, in a library that is preloaded beside the agent.
//
// It records every workload that reaches a queue, with its programs and their ranges. This is later than anything the agent
// reads, so the agent's records can be compared with it.
//
// It also makes traces possible: capturing and replaying them, and loading sub-device managers, make the runtime write to
// queues that a mock chip does not have, and it crashes. These few functions do nothing here. All code before them is stock.
//
// All of them are virtual functions of `FDMeshCommandQueue`, whose vtable is filled by symbol name, so preloaded functions
// win. The agent replaces none of them. The C++ library is not used, so that none is loaded that the runtime does not load.

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

static const size_t CAPACITY = 65536;
static Note notes[CAPACITY];
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static thread_local bool recording;
static thread_local uint32_t recorded;

// Copies the notes since the last call; -1 if there were too many.
extern "C" long lab_queue_take(Note *out, size_t room) {
    pthread_mutex_lock(&lock);
    bool all = count <= room && count < CAPACITY;
    long taken = all ? (long)count : -1;
    if (all) memcpy(out, notes, count * sizeof(Note));
    count = 0;
    pthread_mutex_unlock(&lock);
    return taken;
}

static void add(const Note &note) {
    pthread_mutex_lock(&lock);
    if (count < CAPACITY) notes[count++] = note;
    pthread_mutex_unlock(&lock);
}

// The runtime's own function of that name. Python loads the runtime in a scope of its own, so its handle is used.
static void *runtime(const char *name) {
    void *handle = nullptr;
    auto find = [](dl_phdr_info *info, size_t, void *out) {
        const char *file = strrchr(info->dlpi_name, '/');
        if (file && !strncmp(file, "/libtt_metal.so", 15)) *(void **)out = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        return 0;
    };
    dl_iterate_phdr(find, &handle);
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
        Note note = {};
        note.kind = recording;
        note.trace = recorded;
        note.program = node->program;
        note.id = id(node->program);
        note.mesh = mesh_id(mesh);
        Coordinates from = coordinates(first(node->range)), to = coordinates(last(node->range));
        note.dimensions = from.count;
        for (size_t n = 0; n < from.count && n < 4; n++) {
            note.from[n] = from.begin[n];
            note.to[n] = to.begin[n];
        }
        add(note);
    }
}

#define QUEUE "_ZN2tt8tt_metal11distributed18FDMeshCommandQueue"
#define TRACE "RKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE"
#define REPLACE(name, parameters, mangled) \
    extern "C" void name parameters __asm__(mangled); \
    void name parameters
#define RECORD_BEGIN QUEUE "12record_beginE" TRACE "RKSt10shared_ptrINS1_19MeshTraceDescriptorEE"
#define RECORD_END QUEUE "10record_endEv"
#define ENQUEUE_TRACE QUEUE "13enqueue_traceE" TRACE "b"
#define ENQUEUE QUEUE "21enqueue_mesh_workloadERNS1_12MeshWorkloadEb"
#define RESET QUEUE "18reset_worker_stateEbj"

REPLACE(record_begin, (void *queue, const uint32_t *trace, void *descriptor), RECORD_BEGIN) {
    static auto real = (void (*)(void *, const uint32_t *, void *))runtime(RECORD_BEGIN);
    recording = true;
    recorded = *trace;
    real(queue, trace, descriptor);
}

REPLACE(record_end, (void *queue), RECORD_END) {
    static auto real = (void (*)(void *))runtime(RECORD_END);
    recording = false;
    recorded = 0;
    real(queue);
}

REPLACE(enqueue_trace, (void *queue, const uint32_t *trace, bool), ENQUEUE_TRACE) {
    (void)queue;
    Note note = {};
    note.kind = 2;
    note.trace = *trace;
    add(note);
}

REPLACE(enqueue_mesh_workload, (void *queue, void *workload, bool blocking), ENQUEUE) {
    static auto real = (void (*)(void *, void *, bool))runtime(ENQUEUE);
    if (!recording) real(queue, workload, blocking);
    // It returned, so nothing was thrown.
    note_workload(queue, workload);
}

// In 0.81.1, and in 0.76.0.
REPLACE(reset_new, (void *), RESET "RKSt6vectorISt4pairINS0_12CoreRangeSetEjESaIS6_EESt4spanIKjLm18446744073709551615EE") {}
REPLACE(reset_old, (void *),
    RESET "RKSt6vectorIjN4ttsl17aligned_allocatorIjLm16EEEERKS3_ISt4pairINS0_12CoreRangeSetEjESaISC_EESt4spanIKjLm18446744073709551615EE") {}
