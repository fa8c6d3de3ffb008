/* Holds a file of Windows so that nobody else can open it, or with `read` only read it, until its input ends: FILE [read]. */
#include <stdio.h>
#include <windows.h>

int main(int argc, char **argv) {
    DWORD access = GENERIC_READ | (argc == 2 ? GENERIC_WRITE : 0), share = argc == 2 ? 0 : FILE_SHARE_READ;
    HANDLE file = argc > 1 ? CreateFileA(argv[1], access, share, NULL, OPEN_EXISTING, 0, NULL) : INVALID_HANDLE_VALUE;
    if (file == INVALID_HANDLE_VALUE) return fprintf(stderr, "not held: error %lu\n", GetLastError()), 1;
    puts("held");
    fflush(stdout);
    while (getchar() != EOF) continue;
    return !CloseHandle(file);
}
