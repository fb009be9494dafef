### everything
mkdir -p a/b; touch a/1 a/b/2 3; find . | sort; find a | sort
### names
touch x.c x.h y.C; find . -name '*.c' | sort; find . -iname '*.c' | sort; find . ! -name '*.c' | sort
### types
mkdir d; touch f; ln -s f l; find . -type f; find . -type d | sort; find . -type l
### depth
mkdir -p a/b/c; touch a/b/c/f; find . -maxdepth 1 | sort; find . -mindepth 2 | sort; find . -maxdepth 2 -mindepth 2
### size
printf '%2000s' x > big; : > empty; echo s > small; find . -type f -size +1k; find . -type f -empty; find . -type f -size -2 | sort; find . -size 2c
### exec
touch a b; find . -type f -exec echo found {} \; | sort; find . -type f -exec echo {} + | tr ' ' '\n' | sort
### exec as a test
echo needle > a; echo hay > b; find . -type f -exec grep -q needle {} \; -print
### delete
touch a.tmp b.txt; mkdir -p d; touch d/c.tmp; find . -name '*.tmp' -delete; find . | sort
### prune
mkdir -p .git src; touch .git/x src/y; find . -name .git -prune -o -type f -print
### operators
touch a b c; find . \( -name a -o -name b \) -type f | sort; find . -type f -not \( -name a -o -name b \)
### newer
touch -d 2020-01-01 old; touch -d 2022-01-01 mid; touch new; find . -type f -newer mid; find . -type f ! -newer mid | sort
### mtime
touch -d '10 days ago' old; touch new; find . -type f -mtime +5; find . -type f -mtime -5; find . -mmin -5 -type f
### perm
touch a b; chmod 755 a; chmod 644 b; find . -type f -perm 755; find . -type f -perm -100; find . -type f -perm /111
### path
mkdir -p x/y z; touch x/y/f z/f; find . -path './x/*' -type f; find . -path '*y*' | sort
### print0
touch 'a b' c; find . -type f -print0 | sort -z | tr '\0' '\n'
### several starts
mkdir p q; touch p/1 q/2; find p q -type f; find p nothere -type f 2>/dev/null; echo $?
### links
touch a; ln a b; touch c; find . -type f -links 2 | sort; find . -samefile a | sort
### printf
mkdir d; echo abc > d/f; find d -type f -printf '%f %s %p %d\n'
### quit
touch a; find . -name a -print -quit | wc -l
### regex
touch ab1 ab2 cd3; find . -regex '.*/ab[0-9]' | sort
### empty directories
mkdir -p a/b c; touch c/f; find . -type d -empty
### counting
mkdir -p a b; for i in 1 2 3; do touch a/$i b/$i; done; find . -type f | wc -l
### with while
touch 'x 1' 'x 2'; find . -type f | sort | while IFS= read -r f; do echo "<$f>"; done
### absolute start
mkdir s; touch s/f; find "$PWD/s" -name f | sed "s|$PWD||"
### trailing slash
mkdir s; touch s/f; find s/ | sort
### exec with replacement inside a word
touch a; find . -name a -exec echo 'pre{}post' \;
### exec plus status
touch a; find . -name a -exec false {} +; echo $?; find . -name a -exec false {} \; ; echo $?
