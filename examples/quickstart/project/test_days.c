/* Passes today and must go on passing: 2000 was one. */

#include "days.h"
#include <stdio.h>

static int failures;

static void check(int year, int month, int expected)
{
    int got = days_in_month(year, month);
    if (got != expected) {
        printf("month %d of %d: expected %d days, got %d\n", month, year, expected, got);
        failures++;
    }
}

int main(void)
{
    check(2023, 2, 28);
    check(2024, 2, 29);
    check(2000, 2, 29);
    check(2024, 12, 31);
    check(2024, 13, 0);
    return failures != 0;
}
