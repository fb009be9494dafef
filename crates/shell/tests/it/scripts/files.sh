### mkdir forms
mkdir a; mkdir -p b/c/d; mkdir a 2>/dev/null; echo $?; mkdir -p a; echo $?; mkdir -m 700 e; ls -ld e | cut -c1-10
### touch and times
touch -d '2021-05-06 07:08:09' f; date -r f +%Y-%m-%dT%H:%M:%S; stat -c %Y f
### cp file
echo a > x; cp x y; cat y; cp x none/ 2>/dev/null; echo $?; cp nofile z 2>/dev/null; echo $?
### cp into a directory
mkdir d; echo 1 > a; echo 2 > b; cp a b d; ls d; cp a b c 2>/dev/null; echo $?
### cp recursive
mkdir -p s/t; echo x > s/t/f; ln -s t s/l; cp -r s n; find n | sort; cp s m 2>/dev/null; echo $?
### cp into existing directory
mkdir -p s d; echo x > s/f; cp -r s d; cp -r s/. d; find d | sort
### cp archive keeps links and modes
mkdir s; echo x > s/a; ln s/a s/b; chmod 640 s/a; touch -d 2020-01-01 s/a; cp -a s n; stat -c '%h %a %Y' n/a n/b; [ n/a -ef n/b ] && echo same
### cp without clobber
echo new > a; echo old > b; cp -n a b; cat b; cp -v a b
### cp follows or keeps a link
echo t > f; ln -s f l; cp l c; cp -P l k; test -L c || echo file; readlink k
### mv
echo a > x; mv x y; cat y; mkdir d; mv y d; ls d; mv d e; ls e; mv nofile z 2>/dev/null; echo $?
### mv over
echo a > x; echo b > y; mv x y; cat y; ls; echo c > z; mv -n z y; cat y
### mv many
touch a b; mkdir d; mv a b d; ls d
### rm
touch a b; rm a; ls; rm a 2>/dev/null; echo $?; rm -f a; echo $?; mkdir -p d/e; rm d 2>/dev/null; echo $?; rm -r d; ls
### rm says what it removes
mkdir -p d/e; touch d/e/f g; ln -s d l; rm -v g l; rm -rv d; mkdir n; rm -dv n; ls
### rm says why not
mkdir -p d/e; touch f; for w in "d" "-d d" "none" "f/x" "-f none f/x" "-r . .." "-r d/."; do rm $w 2>&1; echo $?; done; ls
### rm of a link to a directory
mkdir d; touch d/f; ln -s d l; rm l/ 2>&1; echo $?; ls d; rm -r l; ls
### rm goes on after what it cannot remove
touch a b; rm a none b 2>&1; echo $?; rm -- none a 2>/dev/null; echo $?; rm 2>/dev/null; echo $?; rm -f; echo $?; ls
### rmdir
mkdir -p a/b; rmdir a 2>/dev/null; echo $?; rmdir a/b a; ls
### ln symbolic
echo t > f; ln -s f l; cat l; readlink l; ln -s f l 2>/dev/null; echo $?; ln -sf other l; readlink l; ln -s nowhere dead; test -e dead; echo $?
### ln hard
echo t > f; ln f g; echo more >> g; cat f; stat -c %h f; rm f; cat g; stat -c %h g
### ln into a directory
mkdir d; touch f; ln f d; ln -s ../f d/s; ls d; [ f -ef d/f ] && echo same
### ln errors
mkdir d; ln d e 2>/dev/null; echo $?; ln nofile x 2>/dev/null; echo $?; touch a b; ln a b 2>/dev/null; echo $?; ln -f a b; stat -c %h a
### ls forms
mkdir d; touch b a .h d/x; ls; ls -a; ls -A; ls -1 d; ls d a; ls -d d; ls -r; ls nofile 2>/dev/null; echo $?
### ls recursive
mkdir -p a/b c; touch a/1 a/b/2 c/3; ls -R; ls -R a c
### ls long
echo hi > f; chmod 754 f; ln -s f l; ls -l f | awk '{print $1, $2, $5, $NF}'; ls -l l | awk '{print $1, $(NF-2), $(NF-1), $NF}'
### ls marks
mkdir d; touch f; chmod +x f; ln -s f l; touch p; ls -F; ls -p
### ls sorting
echo 1 > a; echo 123 > b; touch -d 2020-01-01 c; ls -S; ls -t | tail -1; ls -tS a b
### ls inode
touch a; ln a b; set -- $(ls -i a) $(ls -i b); [ $1 = $3 ] && echo same
### ls of a link to a directory
mkdir d; touch d/x; ln -s d l; ls l; ls -d l; ls l/
### chmod forms
touch f; for m in 600 u+x go+r a-w u=rw,g=r,o= +x; do chmod $m f; stat -c %a f; done
### chmod recursive
mkdir -p d/e; touch d/f; chmod -R 700 d; stat -c '%a %n' d d/e d/f
### stat formats
printf hello > f; ln -s f l; mkdir d; stat -c '%n %s %F %a %A %h' f; stat -c '%N %F' l; stat -L -c %s l; stat -c '%F %a' d; stat --printf '%n\t%s\n' f
### stat missing
stat nofile 2>/dev/null; echo $?
### realpath and readlink
mkdir -p a/b; ln -s a/b l; cd a/b; realpath ../../l/.. | sed 's|.*/w|w|'; readlink -f ../../l | sed 's|.*/w|w|'
### pwd and cd
mkdir -p a/b; cd a/b; pwd | sed 's|.*/w|w|'; cd ..; cd - > /dev/null; basename "$PWD"; cd /nonexistent 2>/dev/null; echo $?
### cd through a link
mkdir -p r/s; ln -s r/s l; cd l; basename "$PWD"; cd ..; basename "$PWD"; cd l; basename "$(pwd -P)"
### pushd and popd
mkdir a b; pushd a > /dev/null; pushd ../b > /dev/null; basename "$PWD"; popd > /dev/null; basename "$PWD"; popd > /dev/null; ls
### mktemp
f=$(mktemp); test -f "$f" && echo file; d=$(mktemp -d); test -d "$d" && echo dir; rm -r "$f" "$d"
### truncate
printf abcdef > f; truncate -s 3 f; cat f; echo; truncate -s 5 f; wc -c < f
### dd
printf abcdefgh > f; dd if=f of=g bs=2 count=2 2>/dev/null; cat g; echo; dd if=f bs=1 skip=6 2>/dev/null; echo
### du counts bytes once
printf '%5000s' x > a; ln a b; du -b a | cut -f1; du -cb a b | tail -1 | cut -f1
### cmp
echo a > x; echo a > y; echo b > z; cmp x y; echo $?; cmp -s x z; echo $?; cmp x z | cut -d' ' -f1-3
### many files
for i in {1..50}; do echo $i > f$i; done; ls | wc -l; cat f{1..50} | paste -sd+ | bc
### deep directories
p=.; for i in {1..30}; do p=$p/d; done; mkdir -p $p; touch $p/f; find . -name f | tr -cd / | wc -c
### odd names
touch -- '-dash' 'sp ace' "quo'te" 'star*' 'new$x'; ls; rm -- -dash; rm 'star*'; ls
### same file test
touch a; ln a b; ln -s a c; [ a -ef b ] && echo hard; [ a -ef c ] && echo soft
### install and mode
echo x > f; install -m 755 f g; stat -c %a g
### umask
umask 077; touch f; mkdir d; stat -c %a f d
### copy a device
cp /dev/null f; wc -c < f
