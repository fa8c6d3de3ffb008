/* Ids and serial numbers from C:  cc example.c $(pkg-config --cflags --libs keymill) */
#include <inttypes.h>
#include <keymill.h>
#include <stdio.h>

int main(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL, *customers = NULL;
    uint64_t id;
    char no[64];
    size_t len;

    int failed = km_mill_open("sqlite:keymill.db", &mill) != KM_OK
        || km_mill_source(mill, "segment:orders", &orders) != KM_OK
        || km_mill_source(mill, "serial:cust_info/custid?date=yyyyMMdd&number=000000", &customers) != KM_OK
        || km_source_next(orders, &id) != KM_OK
        || km_source_next_text(customers, no, sizeof no, &len) != KM_OK;

    if (failed) fprintf(stderr, "%s\n", km_last_error());
    else printf("%" PRIu64 "\n%s\n", id, no);

    km_source_free(customers); /* free of NULL is nothing */
    km_source_free(orders);
    km_mill_free(mill);
    return failed;
}
