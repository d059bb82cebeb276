# setup.sh NAME: a worktree of main at /work/wt/NAME
cd /work/main && git worktree add -q -b "$1" "/work/wt/$1" main && ln -s /work/main/node_modules "/work/wt/$1/node_modules"
