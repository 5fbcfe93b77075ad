package auditcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/audit/verify"
)

// VerifyCmd is "annals audit verify".
type VerifyCmd struct {
	Flags
	Since string `name:"since" placeholder:"FILE" help:"A checkpoint that you kept: the log must go on from it."`
}

// progressEvery is the least time between two lines of progress.
const progressEvery = 5 * time.Second

// maxCheckpoint is the most bytes of a checkpoint with its signatures.
const maxCheckpoint = 1 << 20

// Run verifies the log. Its error is something that is wrong, or that prevents it.
func (c *VerifyCmd) Run(ctx context.Context, to io.Writer) error {
	in := operatorapi.VerifyRequest{}
	if c.Since != "" {
		text, err := readCheckpoint(c.Since)
		if err != nil {
			return err
		}
		in.Since = text
	}
	var report *verify.Report
	shown := time.Now()
	err := operatorapi.VerifyAudit.Call(ctx, c.server(), in, func() {}, func(v operatorapi.Verifying) error {
		if report = v.Report; report != nil || c.JSON || time.Since(shown) < progressEvery {
			return nil
		}
		shown = time.Now()
		_, err := fmt.Fprintf(to, "%d events, position %d of %d\n", v.Events, v.At, v.Head)
		return err
	})
	if err == nil && report == nil {
		err = errors.New("the server stopped before the verification was done")
	}
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(to, report)
	} else {
		_, err = io.WriteString(to, verified(*report))
	}
	if err == nil && report.Finding != nil {
		err = errors.New("the audit log is not what the log and its checkpoints say")
	}
	return err
}

func readCheckpoint(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxCheckpoint))
	return text, errors.Join(err, file.Close())
}

// verified describes a report.
func verified(r verify.Report) string {
	var b strings.Builder
	for _, t := range r.Trees {
		name := t.Organization.String()
		if t.Organization == uuid.Nil {
			name = "the deployment"
		}
		_, _ = fmt.Fprintf(&b, "%s: leaves %d, checked %d; checkpoints %d, the newest covers %d\n", name, t.Size,
			t.Checked, t.Checkpoints, t.Covered)
	}
	_, _ = fmt.Fprintf(&b, "events read: %d, up to position %d; without a checkpoint yet: %d\n", r.Events, r.Head,
		r.Uncovered())
	f := r.Finding
	if f == nil {
		b.WriteString("nothing is wrong\n")
		return b.String()
	}
	name := "organization " + f.Organization.String()
	if f.Organization == uuid.Nil {
		name = "the deployment"
	}
	_, _ = fmt.Fprintf(&b, "WRONG: %s, leaf %d of the tree of %s", f.What, f.Index, name)
	if f.Stream != "" {
		_, _ = fmt.Fprintf(&b, ", event %s, revision %d of stream %s", f.EventID, f.Revision, f.Stream)
	}
	_, _ = fmt.Fprintf(&b, ": %s\n", f.Detail)
	return b.String()
}
