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
// declared there. Another module is bench, which drives the service. Test files are free to cross, and a kit or a
// measurement may import kits.
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

// narrow lists, per folder, all that the folder and those below it may import besides the standard library; the longest
// matching folder decides, and tests and their kits are free. They are the program that checks the audit log offline,
// which is small enough to be read and has no client of a database, of the event store or of HTTP, and the packages
// apart, with all packages of ours that they are made of.
var narrow = map[string][]string{
	"cmd/annals-verify":   {Module + "/domain/audit", Module + "/internal/auditfiles"},
	"internal/auditfiles": {Module + "/domain", "golang.org/x/mod/sumdb", "github.com/transparency-dev"},

	"eventstore/node": {
		Module + "/eventstore/node", Module + "/eventstore/backoff", "github.com/EventStore/EventStore-Client-Go/v4/protos",
		"github.com/cockroachdb/pebble", "github.com/dlclark/regexp2", "github.com/google/uuid", "golang.org/x/net/http2",
		"google.golang.org/grpc", "google.golang.org/protobuf",
	},
	"eventstore/backoff": {},

	"domain/comprehend": {
		Module + "/domain/instant", Module + "/domain/lexicon", Module + "/domain/memory", "github.com/google/uuid",
		"github.com/clipperhouse/uax29", "github.com/kljensen/snowball", "golang.org/x/text/unicode/norm",
	},
	"domain/memory":  {Module + "/domain/blob", Module + "/domain/event", "github.com/google/uuid"},
	"domain/blob":    {"github.com/google/uuid"},
	"domain/event":   {"github.com/google/uuid"},
	"domain/instant": {},
	"domain/lexicon": {},

	"domain/estimate": {
		Module + "/domain/charset", Module + "/domain/instant", Module + "/domain/limit", Module + "/domain/metering",
		Module + "/domain/rawjson", "go.yaml.in/yaml", "golang.org/x/net/html", "golang.org/x/text/encoding",
	},
	"domain/charset":  {"golang.org/x/text/encoding"},
	"domain/metering": {Module + "/domain/fault", Module + "/domain/limit", "github.com/google/uuid"},
	"domain/fault":    {},
	"domain/limit":    {},
	"domain/rawjson":  {},

	"internal/minilm": {
		Module + "/internal/fsx", Module + "/internal/quantized", "github.com/viterin/vek", "golang.org/x/text/unicode/norm",
		"google.golang.org/protobuf/encoding/protowire",
	},
	"internal/fsx":       {},
	"internal/quantized": {"golang.org/x/sys/cpu"},
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

// testOnly are packages that no file but a test, or a package of tests, may import.
var testOnly = []string{
	"net/http/httptest",
	"testing",

	"github.com/PuerkitoBio/goquery",
	"github.com/chromedp",
	"github.com/google/go-cmp",
	"github.com/stretchr/testify",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}

// measures are the folders that measure the service. They may import kits of tests, and the product may not import
// them.
var measures = []string{"bench", "internal/bench"}

// rapid draws another seed in each run, unless the package that fixes it is imported too.
const (
	rapid = "pgregory.net/rapid"
	seeds = "internal/seedtest"
)

// removers are the calls with a context that take events out of the log, and the files that may make them. Each file
// keeps the records of the events first (audit.Kept), or ends streams that have none: blobs. The eraser's own
// Tombstone is among them, and what passes a call on.
var removers = map[string][]string{
	"Tombstone":         {"commands/erasure/records.go", "commands/erasure/round.go", "commands/erasure/sweep.go", "eventstore/journal.go", "eventstore/continuity/continuity.go"},
	"Truncate":          {"commands/erasure/truncate.go", "eventstore/continuity/continuity.go"},
	"Delete":            {"eventstore/continuity/continuity.go"},
	"TombstoneStream":   {"eventstore/esdb/write.go"},
	"DeleteStream":      {"eventstore/esdb/write.go"},
	"SetStreamMetadata": {"eventstore/esdb/write.go"},
}

// temporary are the calls that make a temporary file with a name, and the files that may make them.
var temporary = map[string][]string{
	"CreateTemp":         {"internal/fsx/fsx.go"},
	"ParseMultipartForm": {},
	"ReadForm":           {},
	"FormFile":           {},
}

// bounds are the fields of the metadata of a stream that let a store remove its events. boundsOnly may hold them.
const bounds = `\$(tb|maxCount|maxAge)\b`

var boundsOnly = []string{"eventstore/codec.go", "eventstore/esdb/write.go", "eventstore/node/"}

// forbidden are pieces of text that no file of the tree may hold: a path of somebody's machine works on no other.
const forbidden = "(^|[\\s\"'=(`])/(home|root|Users|work)/[A-Za-z0-9_.-]+"
