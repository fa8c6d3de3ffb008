/* Holds a file of Windows so that nobody else can open it, until its input ends: FILE. */
#include <stdio.h>
#include <windows.h>

int main(int argc, char **argv) {
    HANDLE file = argc == 2 ? CreateFileA(argv[1], GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL) : INVALID_HANDLE_VALUE;
    if (file == INVALID_HANDLE_VALUE) return fprintf(stderr, "not held: error %lu\n", GetLastError()), 1;
    puts("held");
    fflush(stdout);
    while (getchar() != EOF) continue;
    return !CloseHandle(file);
}
