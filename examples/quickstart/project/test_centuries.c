/* Fails today: 1900 was no leap year. */

#include "days.h"
#include <stdio.h>

int main(void)
{
    int got = days_in_month(1900, 2);
    if (got != 28) {
        printf("February 1900: expected 28 days, got %d\n", got);
        return 1;
    }
    return 0;
}
