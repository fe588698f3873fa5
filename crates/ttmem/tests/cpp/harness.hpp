// What the test programs share: checks, and stops at which the test looks at what is published.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            std::exit(1);                                                           \
        }                                                                           \
    } while (false)

// Says where it is, and waits for a line.
inline void stop(const char* name) {
    std::printf("%s\n", name);
    std::fflush(stdout);
    char line[16];
    CHECK(std::fgets(line, sizeof line, stdin) != nullptr);
}

// Who waits for ever fails instead. To be said again by a forked child.
inline unsigned be_patient() { return alarm(300); }
inline const unsigned patience = be_patient();
