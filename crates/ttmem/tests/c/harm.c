/* What may happen to a program in the middle of a report: the first argument selects a trial. Each ends with exit code 0 if the program was
 * not harmed, and if reports work after it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "ttmem.h"

#define ADDRESSES 512
#define MOST_ROUNDS 3000000L

static int32_t allocator;

static int32_t take(uint64_t address) {
    ttmem_buffer it;
    memset(&it, 0, sizeof it);
    it.allocator = allocator;
    it.space = TTMEM_SPACE_DRAM;
    it.address = address;
    it.requested = 64;
    return ttmem_alloc(&it);
}

static int32_t give(uint64_t address) { return ttmem_free(allocator, TTMEM_SPACE_DRAM, address); }

static int fail(const char *what, long long value) {
    fprintf(stderr, "%s: %lld\n", what, value);
    return 1;
}

static ttmem_status status(void) {
    ttmem_status it;
    memset(&it, 0, sizeof it);
    ttmem_get_status(&it);
    return it;
}

/* Frees everything that may be allocated. Then nothing is, whatever happened before. */
static int is_consistent(void) {
    uint64_t lost = status().lost;
    for (uint64_t n = 0; n < ADDRESSES; n++) give(4096 + n * 64);
    if (status().live != 0) return fail("still allocated", (long long)status().live);
    for (uint64_t n = 0; n < ADDRESSES; n++) {
        if (take(4096 + n * 64) != 0) return fail("not allocated", (long long)n);
    }
    if (status().live != ADDRESSES) return fail("allocated", (long long)status().live);
    if (status().lost != lost) return fail("lost at rest", (long long)status().lost);
    return 0;
}

static sigjmp_buf before;
static volatile sig_atomic_t jumps;

static void jump(int signal) {
    (void)signal;
    jumps++;
    siglongjmp(before, 1);
}

static void set_timer(long microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* A signal handler jumps out of reports. */
static int jumped(void) {
    volatile long round = 0;
    signal(SIGALRM, jump);
    set_timer(200);
    sigsetjmp(before, 1);
    while (round < MOST_ROUNDS && jumps < 300) {
        round++;
        for (int again = 0; again < 50; again++) {
            uint64_t address = 4096 + (uint64_t)((round * 7 + again) % ADDRESSES) * 64;
            take(address);
            give(address);
        }
    }
    set_timer(0);
    signal(SIGALRM, SIG_IGN);
    give(0);
    uint64_t lost = status().lost;
    if (lost < 20) return fail("too few events were left", (long long)lost);
    if (lost > (uint64_t)jumps) return fail("more than the event that was left is lost", (long long)lost);
    return is_consistent();
}

static void *report_for_ever(void *unused) {
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (uint64_t n = 0;; n++) {
        take(4096 + n % ADDRESSES * 64);
        give(4096 + n % ADDRESSES * 64);
    }
    return NULL;
}

/* Threads are cancelled in reports. */
static int cancelled(void) {
    for (int round = 0; round < 300; round++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, report_for_ever, NULL) != 0) return fail("no thread", round);
        usleep((useconds_t)(50 + round));
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        give(1 << 20);
        if (take(1 << 20) != 0) return fail("lost after a cancelled thread, round", round);
    }
    give(1 << 20);
    return is_consistent();
}

/* Nothing reads standard error, and there is much to log. */
static int blocked(void) {
    int ends[2];
    char page[4096];
    memset(page, 'x', sizeof page);
    if (pipe(ends) != 0) return 1;
    dup2(ends[1], 2);
    fcntl(2, F_SETFL, O_NONBLOCK);
    while (write(2, page, sizeof page) > 0) {
    }
    while (write(2, page, 1) > 0) {
    }
    fcntl(2, F_SETFL, 0);
    alarm(20);
    return ttmem_define_devices((const int32_t[]){0}, 1) > 0 ? 0 : 1;
}

static void own_handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    _exit(info->si_addr != NULL ? 42 : 43);
}

static char *segment(void) {
    glob_t found;
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/ttmem.[0-9]*", getenv("TTMEM_SHM_DIR"));
    if (glob(pattern, 0, NULL, &found) != 0) exit(fail("no segment", 0));
    return strdup(found.gl_pathv[0]);
}

static void truncate_to(off_t bytes) {
    if (truncate(segment(), bytes) != 0) exit(fail("not truncated", 0));
}

static volatile char *truncated_page(void) {
    FILE *file = tmpfile();
    if (file == NULL || ftruncate(fileno(file), 4096) != 0) exit(1);
    extern void *mmap(void *, size_t, int, int, int, off_t);
    volatile char *page = mmap(NULL, 4096, 3, 1, fileno(file), 0);
    if (ftruncate(fileno(file), 0) != 0) exit(1);
    return page;
}

/* The segment becomes shorter. */
static int truncated(off_t bytes) {
    truncate_to(bytes);
    for (uint64_t n = 0; n < 100000; n++) {
        take(4096 + n % ADDRESSES * 64);
        give(4096 + n % ADDRESSES * 64);
    }
    for (uint64_t n = 0; n < 50000; n++) take((1 << 24) + n * 64);
    if (strstr(status().reason, "truncated") == NULL) {
        fprintf(stderr, "reason: %s\n", status().reason);
        return 1;
    }
    return status().lost == 0;
}

int main(int count, char **arguments) {
    const char *trial = count > 1 ? arguments[1] : "";
    alarm(60);
    if (strcmp(trial, "blocked") == 0) return blocked();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = own_handler;
    action.sa_flags = SA_SIGINFO;
    if (strcmp(trial, "handled") == 0) sigaction(SIGBUS, &action, NULL);
    allocator = ttmem_define_devices((const int32_t[]){0}, 1);
    if (allocator <= 0) return fail("not enabled", allocator);
    if (take(4096) != 0 || give(4096) != 0) return fail("not tracked", 0);
    if (strcmp(trial, "jumped") == 0) return jumped();
    if (strcmp(trial, "cancelled") == 0) return cancelled();
    if (strcmp(trial, "truncated") == 0) return truncated(0);
    if (strcmp(trial, "shortened") == 0) return truncated(200000);
    /* Other bus errors are the program's. */
    if (strcmp(trial, "sent") == 0) raise(SIGBUS);
    if (strcmp(trial, "faulted") == 0 || strcmp(trial, "handled") == 0) *truncated_page() = 1;
    return fail("unknown trial", 0);
}
