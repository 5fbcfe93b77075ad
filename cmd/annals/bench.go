package main

// BenchCmd is "annals bench".
type BenchCmd struct {
	Recall struct {
		Locomo LocomoCmd `cmd:"" help:"Score recall on dialogues of two people whose questions name the turns that answer them."`
		Beam   BeamCmd   `cmd:"" help:"Score recall on chats with an assistant whose questions name the messages that answer them."`
	} `cmd:"" help:"Measure how well recall finds what it should."`
	Load      LoadCmd      `cmd:"" help:"Measure speed under load, against the budgets of the design."`
	Sustained SustainedCmd `cmd:"" help:"Measure a steady load and an overload against the budgets of the design."`
	Directory DirectoryCmd `cmd:"" help:"Measure what many identities and rules cost, against the budgets of the design."`
	Hostile   HostileCmd   `cmd:"" help:"Measure what a neighbour notices while one tenant does what it should not."`
	Size      SizeCmd      `cmd:"" help:"Measure recall, memory and start as the store grows, against the budgets of the design."`
}
