/* Two Rust libraries in one program. */
#include <stdint.h>
#include <stdio.h>
#include <ttmem.h>

int32_t other_answer(void);

int main(void) {
    const int32_t answer = other_answer();
    printf("%d %d\n", answer, ttmem_define_devices(&(int32_t){0}, 1));
    ttmem_close();
    return 0;
}
