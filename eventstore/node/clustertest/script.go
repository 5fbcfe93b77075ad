// Package clustertest runs a scripted EventStoreDB cluster: members that are processes of their own
// over one shared log, and that fail on command.
//
// A member is the test binary, started once more (see Main). It answers gossip itself and forwards
// every other call to one embedded node in the test process, which holds the log and checks the
// credentials. So whatever the members do, the log is the truth that a test compares with.
package clustertest

import "time"

// Environment variable with the setup of a member, for Main.
const setupVariable = "ANNALS_CLUSTER_MEMBER"

// setup is what a member needs at its start.
type setup struct {
	Addr, Cert, Key string
	// Node is host:port of the shared log.
	Node string
}

// Script is how a member behaves. The zero value is a sound member without a role.
type Script struct {
	// Members are the addresses that gossip shows, with the Dead ones among them. Leader is empty
	// while there is none.
	Members, Dead []string
	Leader        string
	// Refuse answers every call with "not ready".
	Refuse bool
	// Delay is how long a call waits before it is forwarded.
	Delay time.Duration
	// Early refuses an append before it was read.
	Early bool
	// Lag is the position of the newest event that reads show, 0 for all: a follower that is not up
	// to date. Subscriptions hold later events back.
	Lag uint64
	// Deaf answers reads whether the caller requires the leader or not.
	Deaf bool
	// Hold makes every call of streams wait until a script without it.
	Hold bool
	// Claims shows the member itself as the leader in its own gossip, besides Leader.
	Claims bool
	// CommitTimeouts answers an append "Commit phase timeout." while an equal one is being committed.
	CommitTimeouts bool
}

// command is a line that the test sends to a member.
type command struct {
	Number int
	Script Script
	// LoseRequests and LoseAnswers add to the next writes that are lost with every connection: before
	// they are forwarded, or after the log has answered. Cut breaks every connection now.
	LoseRequests, LoseAnswers int
	Cut                       bool
	// TimeOuts replaces the writes that time out, if there are any.
	TimeOuts timeOuts
	// AwaitTwins adds to the next appends that are committed only once an equal one was answered
	// "Commit phase timeout.".
	AwaitTwins int
}

// timeOuts are the next writes that are answered "Operation timed out": Executed after the log has
// answered, others in place of it.
type timeOuts struct {
	Writes   int
	Phase    string
	Executed bool
}

// report is the line with which a member acknowledges a command.
type report struct {
	Number int
	// Calls counts the calls of streams that the member forwarded.
	Calls int
	// Questions counts the calls for gossip.
	Questions int
	// TimedOut counts the writes that the member answered "Operation timed out".
	TimedOut int
}
