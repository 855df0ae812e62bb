#!/usr/bin/env bash
# Ranks with links of their own on one machine: one network namespace a rank, joined by a bridge, each
# link shaped in both directions. Needs root, iproute2 and tc. PREFIX, of at most six characters, keeps
# the namespaces of several runs apart; RATE is what tc takes, such as 100mbit, or none.
#
#   netns_ranks.sh hold PREFIX WORLD RATE   up, print "ready", then read one RATE a line; down at the end
#   netns_ranks.sh up PREFIX WORLD RATE     make and join the namespaces; refused if one is there already
#   netns_ranks.sh rate PREFIX WORLD RATE   shape the links anew
#   netns_ranks.sh down PREFIX WORLD        delete the namespaces of these names
#
# Run rank i with: ip netns exec PREFIXi env GLOO_SOCKET_IFNAME=tcvi MASTER_ADDR=10.77.0.1 ...
# Bytes it has sent: /sys/class/net/tcvi/statistics/tx_bytes, as seen in its namespace.
set -euo pipefail

names() { # PREFIX WORLD
  local i
  echo "$1b"
  for ((i = 0; i < $2; i++)); do echo "$1$i"; done
}

shape() { # NAMESPACE DEVICE RATE
  if [[ $3 == none ]]; then
    ip netns exec "$1" tc qdisc del dev "$2" root 2>/dev/null || true
  else
    ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "$3" burst 64kb latency 50ms
  fi
}

rate() { # PREFIX WORLD RATE
  local i
  for ((i = 0; i < $2; i++)); do
    shape "$1$i" "tcv$i" "$3"
    shape "$1b" "tcp$i" "$3"
  done
}

down() { # PREFIX WORLD
  local name
  for name in $(names "$1" "$2"); do ip netns del "$name" 2>/dev/null || true; done
}

up() { # PREFIX WORLD RATE
  local i name bridge=$1b
  for name in $(names "$1" "$2"); do
    if [[ -e /run/netns/$name ]]; then
      echo "the network namespace $name is there already" >&2
      return 1
    fi
  done
  # shellcheck disable=SC2064  # the names of now
  trap "down '$1' '$2'" EXIT # of a script that fails half-way, too
  ip netns add "$bridge"
  ip netns exec "$bridge" ip link add br0 type bridge
  ip netns exec "$bridge" ip link set br0 up
  for ((i = 0; i < $2; i++)); do
    name=$1$i
    ip netns add "$name"
    ip link add "tcv$i" netns "$name" type veth peer name "tcp$i" netns "$bridge"
    ip netns exec "$name" ip addr add "10.77.0.$((i + 1))/24" dev "tcv$i"
    ip netns exec "$name" ip link set "tcv$i" up
    ip netns exec "$name" ip link set lo up
    ip netns exec "$bridge" ip link set "tcp$i" master br0
    ip netns exec "$bridge" ip link set "tcp$i" up
  done
  rate "$1" "$2" "$3"
}

case "$1" in
hold)
  trap 'exit 0' INT TERM HUP
  up "$2" "$3" "$4"
  echo ready
  while read -r wanted; do
    rate "$2" "$3" "$wanted"
    echo ready
  done
  ;;
up)
  up "$2" "$3" "$4"
  trap - EXIT
  ;;
rate) rate "$2" "$3" "$4" ;;
down) down "$2" "$3" ;;
esac
