// Package archtest checks the source tree against the rules that a machine can check.
package archtest

// Module is the path of this module.
const Module = "github.com/annals-project/annals"

// The most lines of a Go file and of a function that is neither a test nor part of a suite of tests.
const (
	MaxLines     = 600
	MaxFuncLines = 80
)

// may lists, per top-level folder, which of our folders its packages may import; cmd may import all. The client is a
// module of its own that imports the standard library alone; what the service answers just as the client reads it is
// declared there. Another module is bench, which drives the service. Test files are free to cross.
var may = map[string][]string{
	"domain":      {"domain"},
	"eventstore":  {"eventstore", "domain"},
	"client":      {},
	"internal":    {"internal", "domain", "eventstore", "client"},
	"commands":    {"commands", "eventstore", "domain", "internal"},
	"projections": {"projections", "eventstore", "domain", "internal"},
	"writeapi":    {"writeapi", "commands", "domain", "internal", "client"},
	"readapi":     {"readapi", "projections", "domain", "internal", "client"},
	"console":     {"console", "commands", "projections", "domain", "internal"},
	"bench":       {"bench", "domain", "eventstore", "internal", "projections", "client"},
	"cmd":         {"cmd", "domain", "eventstore", "internal", "commands", "projections", "writeapi", "readapi", "console", "client"},
}

// domainMay are the modules that domain may import besides the standard library. None of them does
// input or output. The tokenizer of HTML, the tables of charsets and YAML read the files of an estimate; the tables
// of Unicode and the stemmers analyse text, the tree hashes read records, and notes and formats are those of proofs.
var domainMay = []string{
	"github.com/google/uuid", "github.com/kljensen/snowball", "github.com/clipperhouse/uax29", "golang.org/x/net/html",
	"golang.org/x/text/encoding", "golang.org/x/text/cases", "golang.org/x/text/unicode/norm", "github.com/blevesearch/snowballstem",
	"go.yaml.in/yaml/v3", "golang.org/x/mod/sumdb/tlog", "golang.org/x/mod/sumdb/note",
	"github.com/transparency-dev/formats",
}

// narrow lists the folders of the program that checks the audit log offline, with all that they may import besides the
// standard library: it is small enough to be read, and has no client of a database, of the event store or of HTTP.
var narrow = map[string][]string{
	"cmd/annals-verify":   {Module + "/domain/audit", Module + "/internal/auditfiles"},
	"internal/auditfiles": {Module + "/domain", "golang.org/x/mod/sumdb", "github.com/transparency-dev"},
}

// only maps an import path, and all below it, to the folders that may import it. The longest
// matching path decides. Test files may import anything.
var only = map[string][]string{
	"github.com/EventStore/EventStore-Client-Go":           {"eventstore/esdb"},
	"github.com/EventStore/EventStore-Client-Go/v4/protos": {"eventstore/esdb", "eventstore/node"},
	"github.com/cockroachdb/pebble":                        {"eventstore/node"},
	"github.com/dlclark/regexp2":                           {"eventstore/node"},
	"github.com/labstack/echo":                             {"writeapi", "readapi", "console", "internal/httpx", "internal/auth"},
	"github.com/blevesearch":                               {"projections/recallindex"},
	"github.com/blevesearch/snowballstem":                  {"domain/recall"},
	"github.com/elastic":                                   {"projections/recallindex/elastic"},
	"github.com/alecthomas/kong":                           {"bench/cmd", "cmd"},
	"github.com/viterin/vek":                               {"internal/minilm"},
	"modernc.org/sqlite":                                   {"bench"},
}

// testOnly are modules that no file but a test, or a package of tests, may import.
var testOnly = []string{
	"github.com/PuerkitoBio/goquery",
	"github.com/chromedp",
	"github.com/google/go-cmp",
	"github.com/stretchr/testify",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}

// rapid draws another seed in each run, unless the package that fixes it is imported too.
const (
	rapid = "pgregory.net/rapid"
	seeds = "internal/seedtest"
)

// removers are the calls with a context that take events out of the log, and the files that may make them. Each file
// keeps the records of the events first (audit.Kept), or ends streams that have none: blobs. The eraser's own
// Tombstone is among them, and what passes a call on.
var removers = map[string][]string{
	"Tombstone":         {"commands/erasure/records.go", "commands/erasure/round.go", "commands/erasure/sweep.go", "eventstore/tombstone.go", "eventstore/continuity/calls.go"},
	"Truncate":          {"commands/erasure/truncate.go", "eventstore/continuity/calls.go"},
	"Delete":            {"eventstore/continuity/calls.go"},
	"TombstoneStream":   {"eventstore/esdb/write.go"},
	"DeleteStream":      {"eventstore/esdb/write.go"},
	"SetStreamMetadata": {"eventstore/esdb/write.go"},
}

// temporary are the calls that make a temporary file with a name, and the files that may make them.
var temporary = map[string][]string{
	"CreateTemp":         {"internal/fsx/fsx.go", "internal/fsx/unnamed.go"},
	"ParseMultipartForm": {},
	"ReadForm":           {},
	"FormFile":           {},
}

// bounds are the fields of the metadata of a stream that let a store remove its events. boundsOnly may hold them.
const bounds = `\$(tb|maxCount|maxAge)\b`

var boundsOnly = []string{"eventstore/esdb/truncate.go", "eventstore/metadata.go", "eventstore/node/"}

// forbidden are pieces of text that no file of the tree may hold: a path of somebody's machine works on no other.
const forbidden = "(^|[\\s\"'=(`])/(home|root|Users|work)/[A-Za-z0-9_.-]+"
