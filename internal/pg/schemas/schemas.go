// Package schemas names the schemas of this program in a database.
//
// Statements name a schema without a prefix, as in "select from access.people". A service with a prefix has its own
// schemas in a database that it shares: every connection that internal/pg opens sends what Prefix.Statement returns.
package schemas

import (
	"errors"
	"regexp"
	"strings"

	"github.com/annals-project/annals/internal/projection"
)

// Ops is the schema of what is not derived from the log.
const Ops = "ops"

// The ends of the names of schemas that rebuilds make.
const (
	ShadowSuffix = "_next"
	OldSuffix    = "_old_" // a number follows
)

// Names returns the names without a prefix of all schemas: ops and those of the projections.
func Names() []string { return append(projection.Names(), Ops) }

// Prefix begins the names of the schemas of a service. The zero value is no prefix.
type Prefix string

// MaxPrefix is the most bytes of a prefix. The longest name of a schema, with the suffix of one that was live before,
// then still is shorter than the 63 bytes to which Postgres cuts names.
const MaxPrefix = 20

var wellFormed = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Parse returns the prefix that a setting names, or what is wrong with it.
func Parse(setting string) (Prefix, error) {
	switch {
	case setting == "":
		return "", nil
	case !wellFormed.MatchString(setting):
		return "", errors.New("must begin with a lower-case letter, and have lower-case letters, digits and _ only")
	case strings.HasPrefix(setting, "pg_"):
		return "", errors.New("must not begin with pg_: Postgres keeps such names for itself")
	case len(setting) > MaxPrefix:
		return "", errors.New("must have at most 20 bytes")
	}
	return Prefix(setting), nil
}

// Name returns the name in the database of a schema of this program, its shadow or one that was live before. Another
// name stays as it is.
func (p Prefix) Name(name string) string {
	if isName(name) {
		return string(p) + name
	}
	return name
}

// Projections is a regular expression of Postgres for the names in the database of the schemas of projections, their
// shadows and those that were live before.
func (p Prefix) Projections() string {
	names := strings.Join(projection.Names(), "|")
	return "^" + string(p) + "(" + names + ")(" + ShadowSuffix + "|" + OldSuffix + "[0-9]+)?$"
}

// IsOfAnother reports whether a name in the database is of a schema of this program with another prefix, or with none.
func (p Prefix) IsOfAnother(inDatabase string) bool {
	base := withoutSuffix(inDatabase)
	for _, name := range Names() {
		if strings.HasSuffix(base, name) {
			return base != string(p)+name
		}
	}
	return false
}

// isName reports whether a name without a prefix is of a schema of this program.
func isName(name string) bool {
	return known[withoutSuffix(name)]
}

// known are the values of Names.
var known = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range Names() {
		all[name] = true
	}
	return all
}()

// withoutSuffix returns a name without the end that a rebuild gives it.
func withoutSuffix(name string) string {
	if base, is := strings.CutSuffix(name, ShadowSuffix); is {
		return base
	}
	i := strings.LastIndex(name, OldSuffix)
	if i < 0 {
		return name
	}
	number := name[i+len(OldSuffix):]
	if number == "" || strings.Trim(number, "0123456789") != "" {
		return name
	}
	return name[:i]
}

// Call stands for the prefix in a statement, as a text. It is no function of Postgres, so a connection that
// internal/pg did not open refuses it.
const Call = "annals_schema_prefix()"

// LockKey is a number that differs between prefixes, in a statement. The key of an advisory lock includes it, because
// such a lock is of the whole database. It is 0 without a prefix.
const LockKey = "(case " + Call + " when '' then 0 else hashtextextended(" + Call + ", 0) end)"

// Statement returns a text of statements with the prefix before each name of a schema of this program, and in place of
// each Call. It changes no name of an alias, a column or a table, no comment, and no text but one that Postgres reads
// as a name: that of to_regclass and the like. The bodies of functions are statements too.
func (p Prefix) Statement(sql string) string {
	if p == "" && !strings.Contains(sql, Call) {
		return sql
	}
	r := rewriter{prefix: string(p), sql: sql}
	for r.next < len(sql) {
		r.token()
	}
	if r.out.Len() == 0 {
		return sql
	}
	r.out.WriteString(sql[r.done:])
	return r.out.String()
}

// rewriter is a walk over the tokens of statements.
type rewriter struct {
	prefix, sql string
	// next is where the next token begins. All before done is in out.
	next, done int
	out        strings.Builder
	// last and before are the last two tokens, in lower case.
	last, before string
	// lists is true within a list of schemas, such as that of "drop schema if exists access, usage" or of search_path,
	// and expects where the next name is one of it.
	lists, expects bool
	// alters is true after "alter schema", until the end of the statement.
	alters bool
}

// insert adds the prefix at a place.
func (r *rewriter) insert(at int) { r.replace(at, at, r.prefix) }

func (r *rewriter) replace(from, to int, with string) {
	r.out.WriteString(r.sql[r.done:from])
	r.out.WriteString(with)
	r.done = to
}

// token passes over one token, which may be white space or a comment.
func (r *rewriter) token() {
	at, rest := r.next, r.sql[r.next:]
	switch c := rest[0]; {
	case isSpace(c):
		r.next++
	case strings.HasPrefix(rest, "--"):
		r.next += end(rest, strings.IndexByte(rest, '\n'), 1)
	case strings.HasPrefix(rest, "/*"):
		r.next += comment(rest)
	case c == '\'':
		r.next += quoted(rest, '\'', false)
		r.text(at)
		r.passed("'")
	case c == '"':
		r.next += quoted(rest, '"', false)
		r.identifier(at+1, strings.ReplaceAll(strings.Trim(r.sql[at:r.next], `"`), `""`, `"`))
		r.passed(`"`)
	case c == '$':
		r.dollar()
	case isDigit(c):
		r.next += span(rest)
		r.passed("0")
	case isLetter(c):
		r.word()
	default:
		r.next++
		r.operator(rest[:1])
	}
}

func (r *rewriter) passed(token string) { r.before, r.last = r.last, token }

func (r *rewriter) operator(token string) {
	switch {
	case token == ",":
		r.expects = r.lists
	case token == "=" && r.last == "search_path":
		r.expects = true
	default:
		r.lists, r.expects = false, false
	}
	r.alters = r.alters && token != ";"
	r.passed(token)
}

// word passes over a word: a keyword, an identifier, or the letter before a text.
func (r *rewriter) word() {
	at := r.next
	r.next += span(r.sql[at:])
	word := strings.ToLower(r.sql[at:r.next])
	if len(word) == 1 && strings.Contains("ebxn", word) && r.next < len(r.sql) && r.sql[r.next] == '\'' {
		r.next += quoted(r.sql[r.next:], '\'', word == "e")
		r.passed("'")
		return
	}
	if strings.HasPrefix(r.sql[at:], Call) {
		r.next = at + len(Call)
		r.replace(at, r.next, "'"+r.prefix+"'::text")
		r.passed(")")
		return
	}
	switch {
	case word == "schema":
		r.lists, r.expects, r.alters = true, true, r.last == "alter"
	case word == "search_path":
		r.lists, r.expects = true, false
	case word == "to" && (r.last == "search_path" || r.last == "rename" && r.alters):
		r.lists, r.expects = true, true
	case word == "if" || word == "not" || word == "exists": // before the names
	default:
		r.identifier(at, word)
	}
	r.passed(word)
}

// identifier passes over an identifier that begins at a place, and adds the prefix if it is the name of a schema.
func (r *rewriter) identifier(at int, name string) {
	if isName(name) && r.last != "." && (r.expects || r.follows(".")) {
		r.insert(at)
	}
	r.lists, r.expects = r.lists && r.expects, false
}

// text adds the prefix to a text that begins at a place and that Postgres reads as the name of a table or a schema.
func (r *rewriter) text(at int) {
	isTable := r.last == "(" && r.before == "to_regclass" || r.follows("::regclass")
	isSchema := r.last == "(" && r.before == "to_regnamespace" || r.follows("::regnamespace")
	if !isTable && !isSchema {
		return
	}
	at++
	if r.next <= at {
		return // it does not end
	}
	name, after, isQuoted := r.sql[at:r.next-1], "", false
	if isTable {
		var qualified bool
		if name, after, qualified = strings.Cut(name, "."); !qualified || strings.Contains(after, "''") {
			return
		}
	}
	if name, isQuoted = strings.CutPrefix(name, `"`); isQuoted {
		name, at = strings.TrimSuffix(name, `"`), at+1
	} else {
		name = strings.ToLower(name)
	}
	if isName(name) {
		r.insert(at)
	}
}

// dollar passes over a parameter, or a text in dollar quotes, which is a body of statements.
func (r *rewriter) dollar() {
	rest := r.sql[r.next:]
	tag := 1
	for tag < len(rest) && (isLetter(rest[tag]) || tag > 1 && isDigit(rest[tag])) {
		tag++
	}
	if tag == len(rest) || rest[tag] != '$' {
		r.next++
		r.next += span(r.sql[r.next:])
		r.passed("$")
		return
	}
	quote := rest[:tag+1]
	body := rest[len(quote):]
	i := strings.Index(body, quote)
	if i < 0 {
		r.next = len(r.sql)
		return
	}
	from := r.next + len(quote)
	if changed := Prefix(r.prefix).Statement(body[:i]); changed != body[:i] {
		r.replace(from, from+i, changed)
	}
	r.next = from + i + len(quote)
	r.passed("'")
}

// follows reports whether the next token is one.
func (r *rewriter) follows(token string) bool {
	return strings.HasPrefix(strings.TrimLeft(r.sql[r.next:], " \t\r\n"), token)
}

// comment returns the length of the comment at the start of a text. Comments nest.
func comment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth, i = depth+1, i+1
		case "*/":
			depth, i = depth-1, i+1
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// quoted returns the length of the quoted text at the start of a text. A quote in it is doubled, or has a backslash
// before it if escapes is true.
func quoted(s string, quote byte, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}

// end returns the length up to and with what is at an index, or the whole if there is no such.
func end(s string, i, length int) int {
	if i < 0 {
		return len(s)
	}
	return i + length
}

// span returns how many bytes of a word or a number are at the start of a text.
func span(s string) int {
	i := 0
	for i < len(s) && (isLetter(s[i]) || isDigit(s[i]) || s[i] == '$') {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}
