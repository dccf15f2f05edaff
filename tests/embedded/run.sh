#!/usr/bin/env bash
# Runs the clients that others wrote against the embedded log of `keepsake serve`: the tools of Kafka's own
# release, kcat, confluent-kafka and Spring Kafka; then starts the service again and compares. KEEPSAKE names
# the program, by default the debug build. Checks whose package is missing are skipped, loudly.
#
#   run.sh [tools | kcat | confluent | spring | restart]…
#
# Without -e outside of `check`: bash ignores -e in a check whose caller looks at the result.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.keepsake/embedded
KEEPSAKE=$(realpath -m "${KEEPSAKE:-${CARGO_TARGET_DIR:-$root/target}/debug/keepsake}")
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0 skipped=0
scratch='' service='' address=''

milliseconds() { date +%s%3N; }
say() { printf 'embedded: %s\n' "$*"; }

# --- the service -------------------------------------------------------------------------------------------------------

start() {
  local tries
  (cd "$scratch" && exec "$KEEPSAKE" serve --no-gateway --data "$scratch/data" --set embedded.listen=127.0.0.1:0 \
    --set embedder.model=hash --set http.listen=127.0.0.1:0) >"$scratch/log" 2>&1 </dev/null &
  service=$!
  for ((tries = 0; tries < 300; tries++)); do
    if grep -q '^ready: ' "$scratch/log"; then
      address=$(<"$scratch/data/address")
      return
    fi
    sleep 0.1
  done
  cat "$scratch/log" >&2
  return 1
}

end() {
  if [[ -n $service ]]; then kill "$service" 2>/dev/null && wait "$service" || true; fi
  if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
}
trap end EXIT

# --- checks ------------------------------------------------------------------------------------------------------------

# Runs a command as one check; $1: its name. Its output is shown if it fails.
check() {
  local code began=$SECONDS
  (
    set -e
    "${@:2}"
  ) >"$scratch/check" 2>&1
  code=$?
  if [[ $code -eq 0 ]]; then
    passed=$((passed + 1))
    printf 'ok      %s, %d s\n' "$1" "$((SECONDS - began))"
  else
    failed=$((failed + 1))
    printf 'FAILED  %s\n' "$1"
    tail -n 40 "$scratch/check"
  fi
}

skip() { # $1: the name of the checks
  skipped=$((skipped + 1))
  printf '%s\n' '****************************************************************************' \
    "**  SKIPPED: the checks of $1, for want of the package named above." \
    '**  This is not a full pass.' \
    '****************************************************************************'
}

# Requires that the output of a tool has a line that matches.
shows() {
  local output
  output=$(cat)
  printf '%s\n' "$output"
  grep -Eq -- "$1" <<<"$output" || { printf 'no line matches: %s\n' "$1"; return 1; }
}

hides() {
  local output
  output=$(cat)
  printf '%s\n' "$output"
  if grep -Eq -- "$1" <<<"$output"; then printf 'a line matches: %s\n' "$1" && return 1; fi
}

equal() { [[ $1 == "$2" ]] || { printf 'expected %s, got %s\n' "$2" "$1"; return 1; }; }

# --- the tools of Kafka's release --------------------------------------------------------------------------------------

java=(timeout 60 java -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn)

run_tool() { "${java[@]}" -cp "$root/.keepsake/kafka-4.1.0/libs/*" "$@"; }

# Runs a tool as its script in Kafka's release does; $1: its class in org.apache.kafka.tools.
tool() { run_tool "org.apache.kafka.tools.$1" --bootstrap-server "$address" "${@:2}"; }

configs() { run_tool kafka.admin.ConfigCommand --bootstrap-server "$address" "$@"; }
groups() { tool consumer.group.ConsumerGroupCommand "$@"; }
console_consumer() { tool consumer.ConsoleConsumer "$@"; }
console_producer() { tool ConsoleProducer "$@"; }
create() { tool TopicCommand --create --topic "$1" --partitions "${2:-1}"; }

versions() { tool BrokerApiVersionsCommand | shows 'Produce\(0\): .*usable'; }

cluster() {
  run_tool org.apache.kafka.tools.ClusterTool cluster-id --bootstrap-server "$address" | shows 'Cluster ID: .+'
}

topics() {
  tool TopicCommand --create --topic topics --partitions 2 --config retention.ms=100000
  tool TopicCommand --describe --topic topics | shows 'PartitionCount: 2.*Configs: retention.ms=100000'
  tool TopicCommand --alter --topic topics --partitions 3
  tool TopicCommand --describe --topic topics | shows 'Partition: 2.*Leader: 1'
  tool TopicCommand --delete --topic topics
  tool TopicCommand --list | hides '^topics$'
}

settings() {
  create settings
  configs --alter --topic settings --add-config retention.ms=5000,cleanup.policy=[compact,delete]
  configs --alter --topic settings --delete-config retention.ms
  configs --describe --topic settings | tee "$scratch/settings" | shows 'cleanup.policy=compact,delete'
  hides 'retention.ms' <"$scratch/settings"
  configs --describe --entity-type brokers --entity-name 1 --all | shows 'message.max.bytes=1048588'
  if configs --alter --topic settings --add-config retention.ms=no; then return 1; fi
}

console() {
  create console 3
  seq 1 500 | console_producer --topic console --property parse.key=false
  console_consumer --topic console --from-beginning --max-messages 500 | sort -n | cmp - <(seq 1 500)
  console_consumer --topic console --from-beginning --max-messages 500 --isolation-level read_committed |
    sort -n | cmp - <(seq 1 500)
}

verifiable() {
  create verifiable 3
  tool VerifiableProducer --topic verifiable --max-messages 5000 --acks -1 | tail -n 1 |
    shows '"value":"[0-9]+"|"acked":5000'
  tool GetOffsetShell --topic verifiable | awk -F: '{ sum += $3 } END { exit sum != 5000 }'
  tool VerifiableConsumer --topic verifiable --group-id verifiable --max-messages 5000 --reset-policy earliest --verbose |
    sed -n 's/.*"name":"record_data".*"value":"\([0-9]*\)".*/\1/p' | sort -n | cmp - <(seq 0 4999)
}

# Of the group that the verifiable consumer left.
consumer_groups() {
  groups --list | shows '^verifiable$'
  groups --describe --group verifiable | tee "$scratch/group"
  equal "$(awk '$2 == "verifiable" { sum += $4; lag += $6 } END { print sum, lag }' "$scratch/group")" '5000 0'
  groups --describe --group verifiable --state | shows 'Empty +0'
  groups --describe --group verifiable --members
  groups --reset-offsets --group verifiable --topic verifiable --to-earliest --execute | shows 'verifiable +2 +0'
  groups --delete-offsets --group verifiable --topic verifiable | shows '2 +Successful'
  groups --delete --group verifiable | shows 'was successful'
  groups --list | hides '^verifiable$'
}

# Two runs with random aborts: the second goes on at the offsets of the first's transactions.
transactional_copy() {
  local run
  create original && create copy
  seq 1 4000 | console_producer --topic original
  for run in 1 2; do
    run_tool org.apache.kafka.tools.TransactionalMessageCopier --broker-list "$address" --input-topic original \
      --input-partition 0 --output-topic copy --transactional-id copier --consumer-group copier --max-messages 2000 \
      --transaction-size 50 --enable-random-aborts --use-group-metadata | tail -n 1 | shows 'ShutdownComplete.*"remaining":0'
  done
  groups --describe --group copier | shows 'original +0 +4000 +4000 +0'
  console_consumer --topic copy --from-beginning --isolation-level read_committed --timeout-ms 8000 >"$scratch/copy"
  cmp "$scratch/copy" <(seq 1 4000)
}

transactions() {
  tool TransactionsCommand list | shows 'copier .*CompleteCommit'
  tool TransactionsCommand describe --transactional-id copier | shows 'copier .*CompleteCommit'
  tool TransactionsCommand describe-producers --topic copy --partition 0 | shows '^[0-9]+.*None'
  tool TransactionsCommand find-hanging --broker-id 1 | hides '^copy'
}

# Ends the transaction of a producer that keeps it open.
open_transaction() {
  local producer tries
  create open
  run_tool org.apache.kafka.tools.ProducerPerformance --topic open --num-records 2000 --record-size 10 --throughput 50 \
    --transactional-id open --transaction-duration-ms 50000 --producer-props "bootstrap.servers=$address" &
  producer=$!
  for ((tries = 0; tries < 20; tries++)); do
    tool TransactionsCommand describe --transactional-id open | tee "$scratch/open" || true
    if grep -q 'Ongoing.*open-0' "$scratch/open"; then break; fi
  done
  shows 'Ongoing.*open-0' <"$scratch/open"
  tool GetOffsetShell --topic open | shows 'open:0:[1-9]'
  console_consumer --topic open --from-beginning --isolation-level read_committed --timeout-ms 3000 | cmp - /dev/null
  # The producer's next request fails: its epoch is over.
  tool TransactionsCommand forceTerminateTransaction --transactionalId open
  tool TransactionsCommand describe --transactional-id open | shows 'CompleteAbort|Empty'
  if wait "$producer"; then return 1; fi
}

offsets() {
  create offsets
  seq 1 100 | console_producer --topic offsets
  printf '{"version":1,"partitions":[{"topic":"offsets","partition":0,"offset":7}]}' >"$scratch/delete.json"
  tool DeleteRecordsCommand --offset-json-file "$scratch/delete.json" | shows 'low_watermark: 7'
  tool GetOffsetShell --topic offsets --time earliest | shows 'offsets:0:7'
  tool GetOffsetShell --topic offsets --time latest | shows 'offsets:0:100'
  tool GetOffsetShell --topic offsets --time 0 | shows 'offsets:0:7'
  console_consumer --topic offsets --from-beginning --max-messages 93 | cmp - <(seq 8 100)
}

performance() {
  create performance 3
  run_tool org.apache.kafka.tools.ProducerPerformance --topic performance --num-records 20000 --record-size 1000 \
    --throughput -1 --producer-props "bootstrap.servers=$address" enable.idempotence=true acks=all compression.type=lz4 |
    shows '20000 records sent'
  tool ConsumerPerformance --topic performance --messages 20000 --group performance | shows ', 2[0-9]{4}, '
  run_tool org.apache.kafka.tools.EndToEndLatency "$address" performance 200 all 100 | shows '99th'
}

compatibility() {
  create compatibility
  tool ClientCompatibilityTest --topic compatibility --offsets-for-times-supported True --cluster-id-supported True \
    --expect-record-too-large-exception False --num-cluster-nodes 1 --create-topics-supported True \
    --describe-acls-supported False --describe-configs-supported True --idempotent-producer-supported True
}

checks_of_tools() {
  "$root/deploy/kafka/kafka.sh" jars || return
  check 'kafka-broker-api-versions' versions
  check 'kafka-cluster' cluster
  check 'kafka-topics: create, describe, alter, delete' topics
  check 'kafka-configs: alter and describe' settings
  check 'kafka-console-producer and -consumer, also read_committed' console
  check 'kafka-verifiable-producer and -consumer: all of 5,000' verifiable
  check 'kafka-consumer-groups: list, describe, reset, delete' consumer_groups
  check 'TransactionalMessageCopier: each of 4,000 exactly once' transactional_copy
  check 'kafka-transactions: list, describe, find-hanging' transactions
  check 'kafka-transactions: ends an open transaction' open_transaction
  check 'kafka-get-offsets and kafka-delete-records' offsets
  check 'kafka-producer-perf-test, kafka-consumer-perf-test, latency' performance
  check 'client-compatibility-test' compatibility
}

# --- kcat --------------------------------------------------------------------------------------------------------------

cat_topic() { timeout 30 kcat -q -b "$address" "$@"; }

codecs() {
  local codec
  for codec in none gzip snappy lz4 zstd; do
    seq -f "$codec %g, a line that is worth compressing" 1 1000 >>"$scratch/lines"
    seq -f "$codec %g, a line that is worth compressing" 1 1000 | cat_topic -P -t cat -z "$codec"
  done
  cat_topic -C -t cat -o beginning -e | sort | cmp - <(sort "$scratch/lines")
}

metadata() { cat_topic -L -t cat | shows 'topic "cat" with 3 partitions'; }
cat_group() { cat_topic -G cats -X auto.offset.reset=earliest -c 5000 cat | sort | cmp - <(sort "$scratch/lines"); }

times() {
  local later
  printf 'before\n' | cat_topic -P -t cat-times
  sleep 0.1
  later=$(milliseconds)
  printf 'after\n' | cat_topic -P -t cat-times
  cat_topic -Q -t "cat-times:0:$later" | shows 'cat-times \[0\] offset 1$'
  cat_topic -C -t cat-times -o "s@$later" -e | cmp - <(printf 'after\n')
}

checks_of_kcat() {
  "$root/tests/clients/tools.sh" kcat && "$root/tests/clients/tools.sh" python || return
  printf '%s\n' cat:3 cat-times:1 | confluent create >/dev/null || return
  check 'kcat: records of each codec' codecs
  check 'kcat: metadata' metadata
  check 'kcat: a consumer group' cat_group
  check 'kcat: offsets by time' times
}

# --- confluent-kafka ---------------------------------------------------------------------------------------------------

confluent() { PYTHONPATH=$root/.keepsake/clients/packages timeout 60 "$python" "$here/confluent.py" "$address" "$@"; }

checks_of_confluent() {
  "$root/tests/clients/tools.sh" python || return
  check 'confluent-kafka: idempotent producer' confluent idempotent
  check 'confluent-kafka: two members share and one takes over' confluent group
  check 'confluent-kafka: transactions with offsets, committed and aborted' confluent transactions
  check 'confluent-kafka: fencing by the same transactional id' confluent fencing
  check 'confluent-kafka: offsets by time' confluent times
  check 'confluent-kafka: topics, settings and groups by the admin client' confluent admin
}

# --- Spring Kafka ------------------------------------------------------------------------------------------------------

spring_jars() {
  command -v javac >/dev/null || { say 'missing: javac; on Debian: apt-get install default-jdk-headless' >&2; return 4; }
  command -v mvn >/dev/null || { say 'missing: mvn; on Debian: apt-get install maven' >&2; return 4; }
  if cmp -s "$here/pom.xml" "$work/spring/pom.xml"; then return; fi
  rm -rf "$work/spring"
  mvn --quiet --batch-mode --strict-checksums --file "$here/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$work/spring" -DincludeScope=runtime </dev/null || return 1
  cp "$here/pom.xml" "$work/spring/pom.xml"
}

spring() { "${java[@]}" -cp "$work/spring/*" "$here/Spring.java" "$address" "$1"; }

checks_of_spring() {
  spring_jars || return
  check 'Spring Kafka: listener and ReplyingKafkaTemplate in transactions' spring replies
  check 'Spring Kafka: ReplyingKafkaTemplate asks the service' spring recall
}

# --- restart -----------------------------------------------------------------------------------------------------------

same_after_restart() { # $1: the checksums before
  local after
  after=$(confluent fingerprint)
  diff <(printf '%s\n' "$1") <(printf '%s\n' "$after")
}

checks_of_restart() {
  local before began code=0
  "$root/tests/clients/tools.sh" python || return
  check 'confluent-kafka: a topic and a group to keep' confluent keep
  before=$(confluent fingerprint) || return
  began=$(milliseconds)
  kill "$service"
  wait "$service" || code=$?
  say "stopped in $(($(milliseconds) - began)) ms"
  check 'the service stops at SIGTERM with code 0' equal "$code" 0
  start || return
  check 'records, offsets of groups and transactional ids are the same after a restart' same_after_restart "$before"
  check 'confluent-kafka: a transaction goes on with the id from before' confluent again
}

# -----------------------------------------------------------------------------------------------------------------------

if [[ ! -x $KEEPSAKE ]]; then
  say "no program at $KEEPSAKE; run: cargo build --locked" >&2
  exit 1
fi
if [[ $# -eq 0 ]]; then set -- tools kcat confluent spring restart; fi
for name; do
  declare -F "checks_of_$name" >/dev/null || { say "there are no checks of $name" >&2; exit 2; }
done
mkdir -p "$work"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/keepsake-embedded.XXXXXX")
start || exit 1
for name; do
  "checks_of_$name"
  case $? in
    0) ;;
    4) skip "$name" ;;
    *)
      failed=$((failed + 1))
      say "the checks of $name did not run" >&2
      ;;
  esac
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[[ $failed -eq 0 ]]
