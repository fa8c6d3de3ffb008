/* Follows a route table and ends with its mill open: STORE HOW. A program that ends by `exit` leaves no reader behind. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

int main(int count, char **words) {
    km_mill *mill;
    km_router *router;
    CHECK(count == 3);
    CHECK(km_mill_open(words[1], &mill) == KM_OK);
    CHECK(km_mill_router(mill, "orders", &router) == KM_OK);
    if (strcmp(words[2], "exits") == 0) exit(0);
    if (strcmp(words[2], "forks") == 0 && fork() == 0) exit(0);
    /* What `kill -9` does: the row stays until it ends by the store's clock. */
    if (strcmp(words[2], "ends at once") == 0) _exit(0);
    return 0;
}
