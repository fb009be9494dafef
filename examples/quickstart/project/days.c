/* Days of a month in the Gregorian calendar. */

#include "days.h"

static int is_leap(int year)
{
    return year % 4 == 0;
}

int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (month < 1 || month > 12)
        return 0;
    return days[month - 1] + (month == 2 && is_leap(year));
}
