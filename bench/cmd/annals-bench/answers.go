package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/annals-project/annals/bench"
)

// AnswersCmd is "annals-bench answers".
type AnswersCmd struct {
	Record  RecordCmd  `cmd:"" help:"Ask the questions of a file, and write the ids of the results in order."`
	Compare CompareCmd `cmd:"" help:"Fail if two recordings differ, and print where."`
}

// RecordCmd is "annals-bench answers record".
type RecordCmd struct {
	Remote
	Identity  string `name:"identity" default:"bench" help:"Who asks a question that names nobody."`
	At        string `name:"at" required:"" placeholder:"TIME" help:"Perspective of all questions, RFC 3339: answers compare at one time only."`
	Limit     int    `name:"limit" default:"100" help:"Most results of a question, 1 to 200."`
	Questions string `arg:"" type:"existingfile" help:"A question on each line, or an object with query and identity."`
}

// Run asks the server, and writes a line of JSON for each question.
func (c *RecordCmd) Run(ctx context.Context, env *Env) error {
	to, err := c.project()
	if err != nil {
		return err
	}
	in, err := os.Open(c.Questions)
	if err != nil {
		return fmt.Errorf("open the questions: %w", err)
	}
	defer func() { _ = in.Close() }()
	asked, err := bench.Questions{Identity: c.Identity, At: c.At, Limit: c.Limit}.Record(ctx, to, in, env.Stdout)
	if err == nil && asked == 0 {
		err = errors.New("the file has no question")
	}
	return err
}

// CompareCmd is "annals-bench answers compare".
type CompareCmd struct {
	Before string `arg:"" type:"existingfile" help:"What record wrote of one program."`
	After  string `arg:"" type:"existingfile" help:"What it wrote of the other one, of the same store and questions."`
}

// Run prints the questions that are answered in another way.
func (c *CompareCmd) Run(env *Env) error {
	before, err := os.Open(c.Before)
	if err != nil {
		return fmt.Errorf("open a recording: %w", err)
	}
	defer func() { _ = before.Close() }()
	after, err := os.Open(c.After)
	if err != nil {
		return fmt.Errorf("open a recording: %w", err)
	}
	defer func() { _ = after.Close() }()
	return bench.CompareAnswers(before, after, env.Stdout)
}
