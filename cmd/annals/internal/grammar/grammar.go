// Package grammar is what the commands have in common in how they are read: settings of the environment, numbers, help.
package grammar

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
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
