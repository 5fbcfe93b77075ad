// Package estimate cuts files into the data points that an import would send, and prices them.
//
// It reads mail, chats, transcripts, tables, records of JSON, calendars, contacts, code, documentation and plain text.
// Text makes text of the bytes of a file, Cut cuts it, and a Plan orders the data points of many files, cuts them into
// batches, and computes which of them fit a balance.
//
// # Promises
//
//   - Cutters are pure: the same file and time zone give the same data points, with the same ids.
//   - They run in linear time, hold one file in memory, and end within 64 KiB of the end of their context. Tests hold
//     that for hostile files of each format, and fuzz targets for any bytes.
//   - A data point is within the limits of package limit. What was left out of a file is a Remark, and a file that is
//     not cut is skipped with a reason (Skip), never in part.
//   - Ids begin with the path of the file, those of mail with the Message-ID: a file that changed replaces its data
//     points, and does not double them.
//
// # What it does not do
//
// It opens no file and no archive, fetches nothing, and runs no code. PDF and the files of office programs are no text
// and are skipped; attachments of mail are named and not read.
//
// # Use
//
//	file, err := estimate.Decoded(ctx, "mail/inbox.mbox", "", raw) // "" detects the kind
//	if err != nil {
//		return err
//	}
//	origin, err := estimate.Cut(ctx, file, time.UTC, func(p estimate.Point) error {
//		fmt.Println(p.ID, p.At, p.Identity, p.Label, len(p.Content))
//		return nil
//	})
//	if skipped, is := errors.AsType[*estimate.Skip](err); is {
//		fmt.Println(file.Path, skipped.Reason)
//	}
//
// # Formats
//
// docs/estimate.md lists the kinds and how each is cut, docs/formats.md the charsets, times and forms that are read,
// and docs/limits.md the limits. testdata/files has a file of each form, testdata/golden what it becomes.
//
// # Figures
//
// 10,000 files of 1 KB take 0.8 s of processor time (BenchmarkPlan_ManyFiles). A second of it cuts about 18,000
// messages of a mailbox as people have it (BenchmarkCut_Mailbox).
package estimate
