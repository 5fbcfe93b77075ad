package grammar

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

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
