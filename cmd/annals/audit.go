package main

import "github.com/annals-project/annals/cmd/annals/internal/auditcli"

// AuditCmd is the group "annals audit".
type AuditCmd struct {
	Status    auditcli.StatusCmd    `cmd:"" help:"Show how far the trees of the audit log are signed and copied."`
	Verify    auditcli.VerifyCmd    `cmd:"" help:"Compare the whole log with the trees of the audit log and their checkpoints, or with a checkpoint that you kept. It ends with 1 if something is wrong."`
	Prove     auditcli.ProveCmd     `cmd:"" help:"Write the proofs of a send, a data point, a request or a deletion."`
	Export    auditcli.ExportCmd    `cmd:"" help:"Write a bundle with a whole tree, which annals-verify checks without a service."`
	RotateKey auditcli.RotateKeyCmd `cmd:"" name:"rotate-key" help:"Add a key to a tree, which signs its checkpoints from then on."`
	Show      auditcli.ShowCmd      `cmd:"" help:"Show what a request was shown, by its read record: each text as the log has it, or that it was erased, and whether who asked could read it then."`
}
