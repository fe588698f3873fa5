// The half without `main`.
#define OTHER_HALF
#include "halves.cpp"
