### the environment is what was given
import os
print(os.environ["HOME"], os.environ.get("NOPE"), os.getenv("LC_ALL")); os.environ["NEW"] = "1"; print(os.getenv("NEW"), "NEW" in os.environ); del os.environ["NEW"]; print(os.getenv("NEW"))
### arguments are what was given
import sys
print(sys.argv)
### no program can be started
import subprocess, os
for act in [lambda: subprocess.run(["no-such-program-anywhere"]), lambda: subprocess.Popen(["no-such-program-anywhere"])]:
    try:
        act(); print("started")
    except OSError:
        print("no")
### no name is found on the network
import urllib.request
try:
    urllib.request.urlopen("http://127.0.0.1:9/", timeout=2)
    print("connected")
except OSError:
    print("no")
