/* Buyer → id → shard → found again: orders on two databases, found by their id alone.
 *
 *     cc sales.c $(pkg-config --cflags --libs keymill) -o sales && ./sales MILL [COUNT] */
#include <inttypes.h>
#include <keymill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char table[] = "version = 1\n"
                            "[[range]]\nupper = 32767\nshard = \"north\"\n"
                            "[[range]]\nupper = 65535\nshard = \"south\"\n";

int main(int argc, char **argv) {
    km_mill *mill = NULL;
    km_source *sales = NULL;
    km_router *router = NULL; /* km_mill_router follows a table in the store */
    int count = argc > 2 ? atoi(argv[2]) : 5, failed = 0;
    if (argc < 2 || km_mill_open(argv[1], &mill) != KM_OK || km_mill_source(mill, "business:sale", &sales) != KM_OK
        || km_router_open_text(table, &router) != KM_OK) {
        fprintf(stderr, "sales MILL [COUNT]: %s\n", km_last_error());
        return 1;
    }
    for (int number = 1; number <= count && !failed; number++) {
        char buyer[32];
        int len = snprintf(buyer, sizeof buyer, "buyer-%d", number);
        uint64_t id;
        km_route found = KM_ROUTE_INIT, owner = KM_ROUTE_INIT;
        /* The id alone leads to the shard of its row, and so does the buyer. */
        failed = km_source_next_for_text(sales, buyer, (size_t)len, &id) != KM_OK
            || km_router_route(router, id, &found) != KM_OK
            || km_router_route_key_text(router, buyer, (size_t)len, &owner) != KM_OK;
        if (failed) fprintf(stderr, "%s\n", km_last_error());
        else if ((failed = strcmp(found.shard, owner.shard)) != 0) fprintf(stderr, "%s is not found\n", buyer);
        else printf("%s: sale %" PRIu64 ", gene %" PRIu32 ", on %s\n", buyer, id, found.gene, found.shard);
    }
    km_router_free(router);
    km_source_free(sales);
    km_mill_free(mill);
    return failed != 0;
}
