package web

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"

	"github.com/annals-project/annals/internal/fsx"
)

// The bounds of a form with files, besides the length of its body.
const (
	// formMemory is how much of the files stays in memory. The rest goes to a file without a name, so that nothing of a
	// customer lies on the disk when the process dies.
	formMemory = 1 << 20
	// maxFields is the most bytes of the fields that are no files, and maxParts the most of fields and files.
	maxFields = 11 << 20
	maxParts  = 1000
)

// File is a file of a form. It can be read until the request is answered.
type File struct {
	Name string
	Size int64

	at     int64
	stored io.ReaderAt
}

// Open returns the content from its beginning.
func (f File) Open() io.Reader { return io.NewSectionReader(f.stored, f.at, f.Size) }

// Files returns the files of a field of the form, in the order of the form.
func (r *Request) Files(field string) []File { return r.files[field] }

// closeFiles frees the files of the form.
func (r *Request) closeFiles() {
	if r.spool != nil {
		_ = r.spool.Close() // it has no name
	}
}

var errForm = errors.New("the form has too many or too long fields")

// readParts reads a form with files as ParseMultipartForm does, which would give its files a name. It reads it once: a
// long form is read before the request has its place.
func (r *Request) readParts() error {
	if r.files != nil {
		return nil
	}
	if err := r.ParseForm(); err != nil { // the query
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return err
	}
	r.files = map[string][]File{}
	fields, memory := int64(maxFields), int64(formMemory)
	for count := 0; ; count++ {
		part, err := parts.NextRawPart()
		if err == io.EOF { // a form that breaks off is an error that wraps it
			return nil
		}
		if err != nil {
			return err
		}
		name := part.FormName()
		switch {
		case count == maxParts:
			return errForm
		case name == "":
		case part.FileName() != "":
			file, err := r.keep(part, &memory)
			if err != nil {
				return err
			}
			r.files[name] = append(r.files[name], file)
		default:
			value, err := io.ReadAll(io.LimitReader(part, fields+1))
			if err != nil {
				return err
			}
			if fields -= int64(len(name) + len(value)); fields < 0 {
				return errForm
			}
			r.Request.Form.Add(name, string(value))
			r.PostForm.Add(name, string(value))
		}
	}
}

// keep reads a file into what is left of the memory, else into the file without a name.
func (r *Request) keep(part *multipart.Part, memory *int64) (File, error) {
	file := File{Name: part.FileName()}
	var text bytes.Buffer
	size, err := io.CopyN(&text, part, *memory+1)
	if errors.Is(err, io.EOF) {
		*memory -= size
		file.Size, file.stored = size, bytes.NewReader(text.Bytes())
		return file, nil
	}
	if err != nil {
		return File{}, err
	}
	if r.spool == nil {
		if r.spool, err = fsx.Unnamed(); err != nil {
			return File{}, err
		}
	}
	if file.at, err = r.spool.Seek(0, io.SeekEnd); err != nil {
		return File{}, err
	}
	file.stored = r.spool
	file.Size, err = io.Copy(r.spool, io.MultiReader(&text, part))
	return file, err
}
