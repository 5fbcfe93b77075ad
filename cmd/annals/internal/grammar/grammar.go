// Package grammar is what the commands have in common in how they are read: settings of the environment, numbers, help.
package grammar

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// settingTag names the tag of a flag with the variable of the environment that sets it.
const settingTag = "setting"

// Unread are the settings whose values the parser could not read, by their variables. They are no errors of the parser,
// which would end at the first and name none of the others that are wrong.
type Unread map[string]error

// Err returns an error that names each setting on a line, nil if there is none.
func (u Unread) Err() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(u)) {
		errs = append(errs, u[name])
	}
	return errors.Join(errs...)
}

// Settled returns the options of a parser whose flags are also set by the environment. What it cannot read of a setting
// is added to unread.
func Settled(getenv func(string) string, unread Unread) kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		for _, option := range []kong.Option{
			kong.Resolvers(fromEnvironment(getenv)), kong.ValueFormatter(showVariable),
			kong.KindMapper(reflect.Int, kong.MapperFunc(unread.decodeNumber)),
		} {
			if err := option.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settings returns the variables that set a flag of any command.
func Settings(model *kong.Application) (names []string) {
	_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error { // returns no error
		if flag, is := node.(*kong.Flag); is && flag.Tag.Get(settingTag) != "" {
			names = append(names, flag.Tag.Get(settingTag))
		}
		return next(nil)
	})
	return names
}

// HideSettings leaves the settings of a command out of its help, which another command lists, except some.
func HideSettings(model *kong.Application, command string, except ...string) {
	for _, node := range model.Children {
		if node.Name != command {
			continue
		}
		for _, flag := range node.Flags {
			name := flag.Tag.Get(settingTag)
			flag.Hidden = flag.Hidden || name != "" && !slices.Contains(except, name)
		}
	}
}

// decodeNumber reads a whole number. Unlike that of the library, its error names what is wanted.
func (u Unread) decodeNumber(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("number")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		if setting := ctx.Value.Tag.Get(settingTag); setting != "" {
			u[setting] = fmt.Errorf("%s (%s) is %q: want a whole number", setting, ctx.Value.ShortSummary(), text)
			return nil
		}
		return fmt.Errorf("is %q: want a whole number", text)
	}
	target.SetInt(n)
	return nil
}

// fromEnvironment resolves a flag that was not given from the variable that its `setting` tag names.
// An empty variable counts as unset.
func fromEnvironment(getenv func(string) string) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		name := flag.Tag.Get(settingTag)
		if name == "" {
			return nil, nil
		}
		if value := getenv(name); value != "" {
			return value, nil
		}
		return nil, nil
	})
}

// showVariable adds to the help of a flag the environment variable that sets it.
func showVariable(value *kong.Value) string {
	if name := value.Tag.Get(settingTag); name != "" {
		return strings.TrimSuffix(value.Help, ".") + " [$" + name + "]."
	}
	return value.Help
}

const settingPrefix = "ANNALS_"

// foreignNames are names that others set: Kubernetes for each service whose name begins with "annals", tests, and who
// loads the credentials file.
var foreignNames = regexp.MustCompile(`^ANNALS_(.+_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$|^ANNALS_TEST_|^ANNALS_(OWNER_PASSWORD|MANAGEMENT_KEY)$`)

// Unknown is a variable that no setting reads.
type Unknown struct {
	Name string
	// Nearest is the setting with the most similar name, "" if none is similar.
	Nearest string
}

// FindUnknown returns the variables of an environment that begin like those of the service and that no setting reads.
func FindUnknown(environment, known []string) []Unknown {
	var found []Unknown
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, settingPrefix) || slices.Contains(known, name) || foreignNames.MatchString(name) {
			continue
		}
		found = append(found, Unknown{name, nearest(name, known)})
	}
	slices.SortFunc(found, func(a, b Unknown) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// nearest returns the known name that the fewest edits make of a name, if they are a third of its letters or fewer.
func nearest(name string, known []string) (best string) {
	least := (len(name)-len(settingPrefix))/3 + 1
	for _, other := range known {
		if n := editsOf(name, other); n < least {
			best, least = other, n
		}
	}
	return best
}

// editsOf counts the insertions, deletions and replacements that make one name of another. Underscores and the case of
// letters do not count.
func editsOf(a, b string) int {
	bare := func(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "_", "")) }
	a, b = bare(a), bare(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// hidden stands for a secret.
const hidden = "(set)"

var (
	// secretNames are settings that hold a secret. Those of files of TLS hold paths.
	secretNames = regexp.MustCompile(`(PASSWORD|SECRET|[A-Z]_KEY)$`)
	fileNames   = regexp.MustCompile(`TLS_KEY$`)
	// inAddress are the credentials in an address.
	inAddress = regexp.MustCompile(`://[^@/?]*@`)
	inQuery   = regexp.MustCompile(`(?i)([?&;](ssl)?password=)[^&]*`)
)

// InForce returns the settings of a command that differ from their defaults, by their variables. Secrets are masked.
func InForce(settings any) map[string]string {
	values := map[string]string{}
	of := reflect.Indirect(reflect.ValueOf(settings))
	for _, field := range reflect.VisibleFields(of.Type()) {
		name, value := field.Tag.Get(settingTag), of.FieldByIndex(field.Index)
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue
			}
			value = value.Elem()
		}
		if text := fmt.Sprint(value); name != "" && text != "" && text != field.Tag.Get("default") {
			values[name] = mask(name, text)
		}
	}
	return values
}

func mask(name, value string) string {
	if secretNames.MatchString(name) && !fileNames.MatchString(name) {
		return hidden
	}
	if strings.Contains(value, "://") {
		value = inQuery.ReplaceAllString(inAddress.ReplaceAllString(value, "://…@"), "${1}…")
	}
	return value
}

// ShowExamples adds examples to the help of each command, by its path, and to that of a group of commands the first
// one of each of its commands, at most two.
func ShowExamples(model *kong.Application, examples map[string][2]string) {
	for _, leaf := range model.Leaves(false) {
		if shown, ok := examples[leaf.Path()]; ok {
			leaf.Detail = detail(shown[:])
		}
	}
	for _, node := range model.Children {
		if node.Leaf() {
			continue
		}
		var first, second []string
		for _, child := range node.Children {
			if of, ok := examples[child.Path()]; ok {
				first, second = append(first, of[0]), append(second, of[1])
			}
		}
		if shown := append(first, second...); len(shown) > 1 {
			node.Detail = detail(shown[:2])
		}
	}
}

// detail is a list of calls that the help does not wrap.
func detail(calls []string) string { return "Examples:\n\n\t" + strings.Join(calls, "\n\t") }
