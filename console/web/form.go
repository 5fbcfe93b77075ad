package web

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/annals-project/annals/domain/fault"
)

// readForm reads the form of a POST, also one with files. Its faults are invalid-request and content-too-large.
func (r *Request) readForm() error {
	var err error
	if r.isMultipart() {
		err = r.readParts()
	} else {
		err = r.ParseForm()
	}
	if arriving, is := errors.AsType[*fault.Error](err); is {
		return arriving
	}
	if _, ours := errors.AsType[*fs.PathError](err); ours {
		return err
	}
	if err != nil {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the form could not be read: send it again")
	}
	return nil
}

// Field is a field of the form, without spaces around it.
func (r *Request) Field(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }

// Raw is a field of the form as it was sent, with the line ends of this service: browsers send CR LF.
func (r *Request) Raw(name string) string {
	return strings.ReplaceAll(r.PostFormValue(name), "\r\n", "\n")
}

func (route Route) limit() int64 {
	if route.Body > 0 {
		return route.Body
	}
	return pageBody
}
