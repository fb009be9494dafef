/* Days of a month (1 to 12); 0 if there is no such month. */
int days_in_month(int year, int month);
