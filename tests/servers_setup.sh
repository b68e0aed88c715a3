#!/bin/sh
# Finds the servers and programs that tests start (redis-server, prometheus with promtool, nginx, chromium, curl),
# installs them where the system's package manager can, or says what is skipped without them. It says what it installs
# before it does; APT=no installs nothing. Node and npm are only looked for: packages of distributions are often too
# old. Where everything must be (CI=true) it fails.
set -u
POLICY=${POLICY:-/usr/sbin/policy-rc.d} # Debian asks it whether a package that is installed may start its service: 101 is no
absent() {
	for command; do
		command -v "$command" >/dev/null 2>&1 || echo "$command"
	done
}
missing() { absent redis-server prometheus promtool nginx chromium curl; }
if [ -n "$(missing)" ] && [ "${APT:-yes}" != no ] && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
	packages=$(missing | sed 's/promtool/prometheus/; s/nginx/nginx-light/' | sort -u)
	# shellcheck disable=SC2086 # one word for each package
	echo "installing for the tests, by apt-get as root:" $packages "(it may take minutes; APT=no skips it, and their tests)"
	if [ ! -e "$POLICY" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$POLICY" && chmod +x "$POLICY" && trap 'rm -f "$POLICY"' EXIT
	fi
	# shellcheck disable=SC2086 # one word for each package
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >/dev/null 2>&1
fi
left="$(missing) $(absent node npm)"
[ -n "${left# }" ] || exit 0
for command in $left; do
	echo "$command is not installed, and was not installed here: the tests that need it are skipped" >&2
done
[ "${CI:-}" != true ] || exit 1
exit 0
