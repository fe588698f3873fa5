// Shared by the test programs: checks, and stops at which the test reads what is published.
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

// Prints the stop's name, and waits for a line.
inline void stop(const char* name) {
    std::printf("%s\n", name);
    std::fflush(stdout);
    char line[16];
    CHECK(std::fgets(line, sizeof line, stdin) != nullptr);
}

// Makes a program that hangs fail instead. A forked child must call it again.
inline unsigned set_time_limit() { return alarm(300); }
inline const unsigned time_limit = set_time_limit();
