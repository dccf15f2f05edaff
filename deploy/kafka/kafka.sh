#!/usr/bin/env bash
# Runs a real Apache Kafka 4.1.0 for tests and trials: one KRaft node on loopback, or three that replicate
# everything, with their data in a directory of your choice. Not for production: every broker has a
# listener without encryption.
#
#   kafka.sh jars                 fetch the jars into .keepsake/kafka-4.1.0 (once; 55 MB)
#   kafka.sh start DIR [options]  start a broker in DIR, wait until it answers, print its host:port
#       --parent PID              stop the broker when process PID has ended, however it ended
#       --set KEY=VALUE           one more broker setting (kept for restarts; may be repeated)
#       --listener NAME=PROTOCOL  one more listener on a free port, as in TLS=SSL (may be repeated)
#       --scram SPEC              a SCRAM user of a new broker, as of kafka-storage --add-scram
#   kafka.sh cluster DIR [options]
#                                 start three brokers in DIR/1 to DIR/3, print their addresses; each is a
#                                 DIR of its own for the other commands. Options --parent, --set, and:
#       --advertise P1,P2,P3      ports that clients are told, for a proxy before each broker
#   kafka.sh stop DIR             stop the broker in good order; start continues with the same data
#   kafka.sh kill DIR             end the broker at once, as a crash does
#   kafka.sh restart DIR          stop and start: the same address, the same data, the same parent
#
# Files in DIR: bootstrap (host:port), listeners (NAME host:port), pid, server.properties, log, data/.
# Exit codes: 0 done, 1 failed, 2 used wrongly, 4 a package is missing. KAFKA_READY_SECONDS (default 60)
# limits the wait.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
keepsake=$(cd "$here/../.." && pwd)/.keepsake
version=4.1.0
home=$keepsake/kafka-$version
ready_seconds=${KAFKA_READY_SECONDS:-60}

say() { printf 'kafka: %s\n' "$*" >&2; } # standard output has only the address
fail() { say "$*"; exit 1; }
usage() { sed -n '6,18s/^#   //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
needs() { # $1: command, $2: Debian package
  command -v "$1" >/dev/null || { say "missing: $1; on Debian: apt-get install $2"; exit 4; }
}

# --- jars --------------------------------------------------------------------------------------------------------------

jars() {
  needs java default-jre-headless
  # The copy of pom.xml marks a complete directory; after a change of pom.xml the jars are fetched again.
  if cmp -s "$here/pom.xml" "$home/pom.xml"; then return; fi
  needs mvn maven
  mkdir -p "$keepsake/cache"
  (
    flock 9 # a second run waits here and then finds the jars
    if cmp -s "$here/pom.xml" "$home/pom.xml"; then exit; fi
    rm -rf "$keepsake"/cache/kafka.?????? # left by a run that was killed
    new=$(mktemp -d "$keepsake/cache/kafka.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    say "fetching Apache Kafka $version with Maven (once; 55 MB)"
    mvn --quiet --batch-mode --strict-checksums --file "$here/pom.xml" dependency:copy-dependencies \
      -DoutputDirectory="$new/home/libs" -DincludeScope=runtime </dev/null >&2 ||
      fail "Maven could not fetch the jars; check the network and run it again"
    cp "$here/pom.xml" "$new/home/pom.xml"
    if [[ -e $home ]]; then mv "$home" "$new/old"; fi
    mv "$new/home" "$home"
    say "jars ready in .keepsake/kafka-$version after $SECONDS s"
  ) 9>"$keepsake/cache/kafka.lock"
}

# --- one broker --------------------------------------------------------------------------------------------------------

# Writes $dir/server.properties, the only record of the ports, so that a restart has the same address.
configure() {
  local port controller listener name other more='' protocols=''
  port=$(free_port) controller=$(free_port)
  : >"$dir/listeners"
  for listener in "${listeners[@]}"; do
    name=${listener%%=*} other=$(free_port)
    more+=,$name://127.0.0.1:$other protocols+=,$name:${listener#*=}
    printf '%s 127.0.0.1:%s\n' "$name" "$other" >>"$dir/listeners"
  done
  {
    common
    cat <<PROPERTIES

# One node has every replica.
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller$more
advertised.listeners=PLAINTEXT://127.0.0.1:$port$more
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT$protocols
controller.quorum.voters=1@127.0.0.1:$controller
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
PROPERTIES
  } >"$dir/server.properties"
  add_settings
}

# Prints the settings of every broker.
common() {
  cat <<PROPERTIES
# Written by kafka.sh.
process.roles=broker,controller
controller.listener.names=CONTROLLER
log.dirs=$dir/data

# Few internal partitions, because each is created at its first use.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4

# Short waits for tests: groups form at once, a dead member or an abandoned transaction is detected
# within seconds, a compacted topic is cleaned as soon as its own settings allow, and a deleted topic
# leaves the disk.
log.cleaner.backoff.ms=500
file.delete.delay.ms=1000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000

# A quarter of the heap is the default, for topics with millions of keys.
log.cleaner.dedupe.buffer.size=16777216

# A misspelt topic name is an error and creates no topic.
auto.create.topics.enable=false
PROPERTIES
}

add_settings() { # the later of two lines with the same key counts
  if [[ ${#settings[@]} -gt 0 ]]; then printf '%s\n' "${settings[@]}" >>"$dir/server.properties"; fi
}

# Chooses a port below the system's range of ephemeral ports, so that no client connection occupies it.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  printf '%s' "$port"
}

# Sets `java`, the beginning of every Java command line; $1: heap in megabytes, all of it from the start,
# because growing stops the broker for seconds. The broker shares the machine with the program under
# test: one garbage collection thread, and no optimising compiler, which would take longer than most
# tests last.
java_command() {
  java=(java "-Xms${1}m" "-Xmx${1}m" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS" -cp "$home/libs/*")
}

# Prints 16 bytes in URL-safe base64. K comes first, because an id that begins with "-" would be an option.
new_id() { printf 'K%s' "$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)"; }

format() {
  local id=${1:-} user scram=()
  id=${id:-$(new_id)}
  for user in "${scram_users[@]}"; do scram+=(--add-scram "$user"); done
  java_command 128
  "${java[@]}" kafka.tools.StorageTool format --cluster-id "$id" --config "$dir/server.properties" \
    "${scram[@]}" >>"$dir/log" 2>&1 || fail "formatting $dir/data failed, see $dir/log"
}

launch() {
  java_command 512
  # A session of its own: Ctrl-C at the terminal stops the program under test, not its broker.
  setsid "${java[@]}" kafka.Kafka "$dir/server.properties" </dev/null >>"$dir/log" 2>&1 &
  broker=$!
  printf '%s\n' "$broker" >"$dir/pid"
  if [[ -n $parent ]]; then
    setsid "${BASH_SOURCE[0]}" watch "$dir" "$broker" "$parent" </dev/null >/dev/null 2>&1 &
  fi
}

# Process ids are reused, so the command line must name this settings file.
is_broker() { tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | grep -qxF "$dir/server.properties"; }

running() { broker=$(cat "$dir/pid" 2>/dev/null) && [[ -n $broker ]] && is_broker "$broker"; }

address() { sed -n 's|^listeners=PLAINTEXT://\([^,]*\).*|\1|p' "$dir/server.properties"; }

# Sends a Metadata request (key 3, version 4, no topics), the first request of any client. The answer must
# contain the id of this cluster, because another broker may have taken the port, and one broker, because
# at first there is none.
answers() {
  local cluster bytes LC_ALL=C
  cluster=$(sed -n 's/^cluster.id=//p' "$dir/data/meta.properties")
  (
    exec 3<>"/dev/tcp/127.0.0.1/${1##*:}" || exit 1
    printf '\x00\x00\x00\x0f\x00\x03\x00\x04\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00\x00' >&3
    bytes=$(timeout 2 head -c 4 <&3 | od -An -tu1 | { read -r _ _ high low && printf '%d' $((high * 256 + low)); })
    [[ $(timeout 2 head -c "$bytes" <&3 | tr -d '\0') == *127.0.0.1*"$cluster"* ]]
  ) 2>/dev/null
}

# The process is recognised by its start time: until Java runs, its command line is that of this script.
wait_until_ready() { # 0: the broker answers, 1: it has exited, 2: too slow
  local deadline=$((SECONDS + ready_seconds)) at born
  at=$(address) born=$(alive "$broker")
  while [[ -n $born && $(alive "$broker") == "$born" ]]; do
    if answers "$at"; then return 0; fi
    if ((SECONDS >= deadline)); then return 2; fi
    sleep 0.1
  done
  return 1
}

start() {
  local attempt fresh=1 result
  if running; then address; return; fi
  jars
  mkdir -p "$dir"
  if [[ -e $dir/data/meta.properties && -e $dir/server.properties ]]; then
    fresh=
    add_settings
  fi
  printf '%s' "$parent" >"$dir/parent"
  trap 'end_broker' EXIT # an exit before the broker is ready stops the broker too
  for attempt in 1 2 3 4 5; do
    if [[ -n $fresh ]]; then
      rm -rf "$dir/data"
      configure
      format
    fi
    launch
    result=0
    wait_until_ready || result=$?
    case $result in
      0)
        trap - EXIT
        address | tee "$dir/bootstrap"
        return
        ;;
      2) fail "no answer after $ready_seconds s, see $dir/log" ;;
    esac
    grep -q "Address already in use" "$dir/log" || break
    # A fresh broker gets new ports; a restarted one keeps its ports, because clients have the address.
    say "attempt $attempt: a port was taken"
    mv "$dir/log" "$dir/log.$attempt"
    sleep 0.5
  done
  tail -n 5 "$dir/log" >&2 2>/dev/null || true
  fail "the broker ended while starting, see $dir/log"
}

# --- three brokers -----------------------------------------------------------------------------------------------------

# Writes the settings of one of three brokers; $1: its number, $2: the port that clients are told or nothing,
# $3: the ports of the three controllers.
configure_one_of_three() {
  local port between controllers
  port=$(free_port) between=$(free_port)
  read -r -a controllers <<<"$3"
  {
    common
    cat <<PROPERTIES

# Three nodes, each with every replica; two of them confirm a record.
node.id=$1
listeners=PLAINTEXT://127.0.0.1:$port,BROKERS://127.0.0.1:$between,CONTROLLER://127.0.0.1:${controllers[$1 - 1]}
advertised.listeners=PLAINTEXT://127.0.0.1:${2:-$port},BROKERS://127.0.0.1:$between
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKERS
controller.quorum.voters=1@127.0.0.1:${controllers[0]},2@127.0.0.1:${controllers[1]},3@127.0.0.1:${controllers[2]}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2

# A node that is away for three seconds is out of the cluster.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=2000
replica.lag.time.max.ms=3000
PROPERTIES
  } >"$dir/server.properties"
  add_settings
}

# Starts three brokers that need each other: all are launched before the first can answer.
cluster() {
  local root=$dir ports controllers number attempt id result
  IFS=, read -r -a ports <<<"$advertise"
  jars
  for attempt in 1 2 3; do
    controllers="$(free_port) $(free_port) $(free_port)" id=$(new_id) result=0
    for number in 1 2 3; do
      dir=$root/$number
      rm -rf "$dir" && mkdir -p "$dir"
      printf '%s' "$parent" >"$dir/parent"
      configure_one_of_three "$number" "${ports[number - 1]:-}" "$controllers"
      format "$id"
      launch
    done
    for number in 1 2 3; do
      dir=$root/$number
      if ! running || ! wait_until_ready; then result=1 && break; fi
    done
    if ((result == 0)); then
      for dir in "$root"/[123]; do address >"$dir/bootstrap"; done
      cat "$root"/[123]/bootstrap | paste -sd,
      return
    fi
    say "attempt $attempt: a broker did not start, see $dir/log"
    for dir in "$root"/[123]; do stop; done
  done
  fail "three brokers did not start, see $root/*/log"
}

end_broker() {
  local i
  if [[ -z ${broker:-} ]] || ! is_broker "$broker"; then return 0; fi
  kill -TERM "$broker" 2>/dev/null || true
  for ((i = 0; i < 150; i++)); do
    is_broker "$broker" || return 0
    sleep 0.1
  done
  say "still running after 15 s: killed"
  kill -KILL "$broker" 2>/dev/null || true
  while is_broker "$broker"; do sleep 0.1; done
}

kill_broker() {
  running || fail "no broker runs in $dir"
  kill -KILL "$broker"
  while is_broker "$broker"; do sleep 0.1; done
  rm -f "$dir/pid"
}

stop() {
  if running; then end_broker; fi
  rm -f "$dir/pid"
}

# Prints the start time of a process, which distinguishes it from a later process with the same id.
# Prints nothing if the process has ended or is a zombie.
alive() { sed -n 's/.*) \([^Z]\) /\1 /p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

watch() { # $1: broker, $2: the process that uses it
  local broker_born user_born
  broker=$1
  broker_born=$(alive "$1") user_born=$(alive "$2")
  while [[ -n $broker_born && $(alive "$1") == "$broker_born" ]] &&
    [[ -n $user_born && $(alive "$2") == "$user_born" ]]; do sleep 1; done
  end_broker
}

# --- arguments ---------------------------------------------------------------------------------------------------------

command=${1:-} dir=${2:-} parent='' advertise='' settings=() listeners=() scram_users=()
if [[ $command == jars && $# -eq 1 ]]; then jars; exit; fi
[[ -n $dir ]] || usage
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
dir=${dir%/}

case $command in
  start | cluster)
    shift 2
    while [[ $# -gt 0 ]]; do
      case $1 in
        --parent) parent=${2:?--parent needs a process id} ;;
        --set) settings+=("${2:?--set needs KEY=VALUE}") ;;
        --listener) listeners+=("${2:?--listener needs NAME=PROTOCOL}") ;;
        --scram) scram_users+=("${2:?--scram needs a specification}") ;;
        --advertise) advertise=${2:?--advertise needs three ports} ;;
        *) usage ;;
      esac
      shift 2
    done
    "$command"
    ;;
  stop) stop ;;
  kill) kill_broker ;;
  restart)
    parent=$(cat "$dir/parent" 2>/dev/null || true)
    stop
    start
    ;;
  watch) watch "$3" "$4" ;; # for ourselves, see launch
  *) usage ;;
esac
