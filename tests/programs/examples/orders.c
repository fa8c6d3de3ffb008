/* Orders with ids of a segment and invoices with serial numbers of the day, on the database of your choice.
 *
 *     cc orders.c $(pkg-config --cflags --libs keymill) -o orders && ./orders MILL [COUNT] [PAUSE_MS]
 *
 * Run it twice at once: no order comes twice. Stop the database under it: it goes on from memory. */
#define _POSIX_C_SOURCE 200809L
#include <keymill.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    km_mill *mill = NULL;
    km_source *orders = NULL, *invoices = NULL;
    int count = argc > 2 ? atoi(argv[2]) : 5, errors = 0;
    long pause_ms = argc > 3 ? atol(argv[3]) : 0;
    if (argc < 2 || km_mill_open(argv[1], &mill) != KM_OK || km_mill_source(mill, "segment:orders", &orders) != KM_OK
        || km_mill_source(mill, "serial:invoice/number?date=yyyyMMdd&number=00000000", &invoices) != KM_OK) {
        fprintf(stderr, "orders MILL [COUNT] [PAUSE_MS]: %s\n", km_last_error());
        return 1;
    }
    for (int i = 0; i < count; i++) {
        uint64_t order;
        char invoice[64];
        size_t len;
        if (km_source_next(orders, &order) == KM_OK && km_source_next_text(invoices, invoice, sizeof invoice, &len) == KM_OK) {
            printf("order %llu, invoice %s\n", (unsigned long long)order, invoice);
        } else if (errors++ == 0) {
            fprintf(stderr, "%s\n", km_last_error());
        }
        fflush(stdout);
        nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    }
    km_source_free(orders);
    km_source_free(invoices);
    km_mill_free(mill);
    if (errors) fprintf(stderr, "errors: %d\n", errors);
    else fprintf(stderr, "errors: none\n");
    return 0;
}
