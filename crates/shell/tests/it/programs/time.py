### dates and differences
from datetime import date, datetime, timedelta
d = date(2024, 2, 28)
print(d + timedelta(days=2), (date(2024, 12, 25) - d).days, d.isocalendar()[1], d.weekday(), d.strftime("%A %d %B %Y"))
print(datetime(2024, 1, 31, 23, 59, 59) + timedelta(seconds=1), date.fromisoformat("2024-02-29").replace(year=2023, day=1))
print(timedelta(days=1, hours=2, minutes=3).total_seconds(), str(timedelta(seconds=-1)), timedelta(hours=5) / 2)
try:
    date(2023, 2, 29)
except ValueError:
    print("no such day")
### times with zones
from datetime import datetime, timezone, timedelta
t = datetime(2024, 5, 1, 12, 0, tzinfo=timezone.utc)
east = timezone(timedelta(hours=5, minutes=30), "IST")
print(t.isoformat(), t.astimezone(east), t.timestamp(), datetime.fromtimestamp(0, timezone.utc))
print(datetime.fromisoformat("2024-05-01T12:00:00+02:00").astimezone(timezone.utc))
print(t == datetime(2024, 5, 1, 17, 30, tzinfo=east))
### parsing and formatting times
from datetime import datetime
t = datetime.strptime("03/Mar/2021 04:05:06.789", "%d/%b/%Y %H:%M:%S.%f")
print(t, t.strftime("%Y-%m-%dT%H:%M:%S"), t.strftime("%j %U %p %I %y %%"), t.isoformat(timespec="milliseconds"))
for bad in ["", "2021", "99/Mar/2021"]:
    try:
        datetime.strptime(bad, "%d/%b/%Y")
    except ValueError:
        print("bad", repr(bad))
### calendars
import calendar
print(calendar.month(2024, 2))
print(calendar.isleap(2000), tuple(map(int, calendar.monthrange(2023, 2))), calendar.timegm((1970, 1, 2, 0, 0, 0)))
print([d.day for d in calendar.Calendar().itermonthdates(2024, 2)][:7])
### clocks go forward
import time
a = time.monotonic(); time.sleep(0.02); b = time.monotonic()
print(b - a >= 0.02, b - a < 60, time.time() > 1.6e9, time.perf_counter_ns() <= time.perf_counter_ns())
print(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(86400 * 365)), time.gmtime(0).tm_wday)
### a schedule of events
import sched, time
s = sched.scheduler(time.monotonic, time.sleep)
for delay, name in [(0.03, "c"), (0.01, "a"), (0.02, "b")]:
    s.enter(delay, 1, print, (name,))
s.run()
### business days between dates
from datetime import date, timedelta
def business_days(start, end):
    day = start
    while day < end:
        if day.weekday() < 5:
            yield day
        day += timedelta(days=1)
print(sum(1 for _ in business_days(date(2024, 1, 1), date(2024, 3, 1))))
