// Annals-verify checks proofs, bundles and copies of the audit log without a service (docs/audit-files.md). It needs
// nothing but the policy, which has the keys that the caller trusts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/internal/auditfiles"
)

// The exit codes.
const (
	right = iota
	wrong
	misused
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `Usage: annals-verify --policy FILE [--since FILE] PATH...

Checks files of the audit log of Annals, offline. A PATH is a .tlog-proof file, the
checkpoint of a folder with its tiles, or a folder or .zip file with any of these.

  --policy FILE  the keys that you trust: a C2SP tlog-policy
  --since FILE   a checkpoint that you kept: the tree must contain all of it

Exit codes: 0 all is right, 1 something is wrong or cannot be read, 2 wrong usage.
`

func run(args []string, out, problems io.Writer) int {
	flags := flag.NewFlagSet("annals-verify", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() { fmt.Fprint(problems, usage) }
	policyFile, since := flags.String("policy", "", ""), flags.String("since", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return right
	case err != nil:
		return misused
	case *policyFile == "" || flags.NArg() == 0:
		flags.Usage()
		return misused
	}
	found, failed, err := verify(*policyFile, *since, flags.Args(), out)
	switch {
	case err != nil:
		fmt.Fprintf(problems, "annals-verify: %v\n", err)
		return wrong
	case found == 0:
		fmt.Fprintln(problems, "annals-verify: no proof and no checkpoint is there")
		return wrong
	case failed > 0:
		fmt.Fprintf(problems, "annals-verify: %d of %d are wrong\n", failed, found)
		return wrong
	}
	fmt.Fprintf(out, "nothing is wrong: %d checked\n", found)
	return right
}

func verify(policyFile, sinceFile string, paths []string, out io.Writer) (found, failed int, err error) {
	text, err := os.ReadFile(policyFile)
	if err != nil {
		return 0, 0, err
	}
	policy, err := proof.ParsePolicy(text)
	if err != nil {
		return 0, 0, err
	}
	var since []byte
	if sinceFile != "" {
		if since, err = os.ReadFile(sinceFile); err != nil {
			return 0, 0, err
		}
	}
	err = auditfiles.Check(policy, paths, since, func(f auditfiles.Found) {
		if found++; f.Err != nil {
			failed++
		}
		show(out, f)
	})
	return found, failed, err
}

// show prints what was checked. What comes from a file is quoted, since it may hold anything.
func show(out io.Writer, f auditfiles.Found) {
	switch {
	case f.Err != nil:
		fmt.Fprintf(out, "%q is WRONG: %q\n", f.Name, f.Err.Error())
	case f.Tree != nil:
		t := f.Tree
		fmt.Fprintf(out, "%q is right: %s, %d leaves, root %s\n", f.Name, origin(t.Checkpoint), t.Size, t.Root)
		fmt.Fprintf(out, "  tiles made again from its entries: %d; leaves listed: %d, of events that have left the log: %d\n",
			t.Tiles, t.Listed, t.Erased)
	default:
		showProof(out, f)
	}
}

func showProof(out io.Writer, f auditfiles.Found) {
	p := f.Proof
	fmt.Fprintf(out, "%q is right: %s, leaf %d of %d, record %x\n",
		f.Name, origin(p.Checkpoint), p.Index, p.Size, p.Record)
	switch e := p.Fields; {
	case e != nil:
		fmt.Fprintf(out, "  event %s, %q at %q\n  revision %d of %q, organization %s\n",
			e.EventID, e.Type, e.At, e.Revision, e.Stream, e.Organization)
	case f.KeptBy != "":
		fmt.Fprintf(out, "  the event has left the log: %s, revision %d of %q, as %q proves\n",
			p.Kept.EventID, p.Kept.Revision, p.Kept.Stream, f.KeptBy)
	default:
		fmt.Fprintf(out, "  the event has left the log. Not proved by these files: it was %s, revision %d of %q\n",
			p.Kept.EventID, p.Kept.Revision, p.Kept.Stream)
	}
	if p.Data != nil {
		fmt.Fprintf(out, "  metadata and data of the event are in the file, and right: %d and %d bytes\n",
			len(p.Metadata), len(p.Data))
	}
	if p.Read != nil {
		fmt.Fprintf(out, "  read record: %q\n", p.Read)
	}
}

// origin names a log and who signed for it.
func origin(c proof.Checkpoint) string {
	by := make([]string, len(c.Keys))
	for i, key := range c.Keys {
		by[i] = strings.TrimPrefix(key, c.Origin)
	}
	said := fmt.Sprintf("%q signed by its key %q", c.Origin, by)
	if len(c.Witnesses) > 0 {
		said += fmt.Sprintf(", witnessed by %q", c.Witnesses)
	}
	return said
}
