package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/annals-project/annals/internal/runtest"
)

// put copies a program of the jobs into the folder of the job.
func (j *job) put(from, to string) {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(jobs, from))
	runtest.Must(j.t, err)
	to = filepath.Join(j.dir, to)
	runtest.Must(j.t, os.MkdirAll(filepath.Dir(to), 0o700))
	runtest.Must(j.t, os.WriteFile(to, text, 0o600))
}

// compileTypes compiles a program of TypeScript as strictly as the compiler does.
func (j *job) compileTypes(programs, from string, more ...string) {
	j.t.Helper()
	j.put(from, filepath.Base(from))
	j.run(filepath.Join(programs, "tsc"), append([]string{
		"--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--module", "commonjs", "--moduleResolution", "node10",
		"--outDir", "built", filepath.Base(from),
	}, more...)...)
}

// generate runs openapi-generator.
func (j *job) generate(folder, language, to string, options ...string) {
	j.t.Helper()
	jars, err := filepath.Glob(filepath.Join(folder, "openapi-generator", "*.jar"))
	runtest.Must(j.t, err)
	if len(jars) != 1 {
		j.t.Fatalf("the generator is %v", jars)
	}
	j.run("java", append([]string{"-jar", jars[0], "generate", "-i", absolute(j.t, document), "-g", language, "-o", to}, options...)...)
}

func (j *job) generatedPython(folder string) {
	j.generate(folder, "python", "generated")
	j.env = append(slices.Clone(j.env), "PYTHONPATH="+filepath.Join(j.dir, "generated"))
	j.finish(filepath.Join(folder, "pydantic", "bin", "python"), "-B", absolute(j.t, filepath.Join(jobs, "jobs", "job.py")))
}

func (j *job) generatedGo(folder string) {
	j.generate(folder, "go", "annals", "--additional-properties=packageName=annals,isGoSubmodule=false")
	for _, name := range []string{"go.mod", "go.sum", "test"} {
		runtest.Must(j.t, os.RemoveAll(filepath.Join(j.dir, "annals", name)))
	}
	j.goJob("job.go.txt")
}

func (j *job) oapiCodegen(folder string) {
	runtest.Must(j.t, os.Mkdir(filepath.Join(j.dir, "annals"), 0o700))
	j.run(filepath.Join(folder, "oapi-codegen", "oapi-codegen"), "-generate", "types,client", "-package", "annals",
		"-o", filepath.Join("annals", "annals.go"), absolute(j.t, document))
	j.goJob("oapi-codegen.go.txt")
}

// goJob runs a job with the package in the folder annals, whose modules come from the proxy of the machine.
func (j *job) goJob(from string) {
	j.t.Helper()
	j.put(filepath.Join("jobs", from), "main.go")
	runtest.Must(j.t, os.WriteFile(filepath.Join(j.dir, "go.mod"), []byte("module example.com/job\n\ngo 1.25\n"), 0o600))
	j.env = append(slices.Clone(j.env), "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	j.run("go", "build", "-o", "job", ".")
	j.finish(filepath.Join(j.dir, "job"))
}

func (j *job) generatedFetch(folder string) {
	j.generate(folder, "typescript-fetch", "client")
	j.compileTypes(filepath.Join(folder, "typescript", "node_modules", ".bin"), filepath.Join("jobs", "fetch.ts"))
	j.finish("node", filepath.Join("built", "fetch.js"))
}

func (j *job) openapiFetch(folder string) {
	modules := filepath.Join(folder, "openapi-typescript", "node_modules")
	runtest.Must(j.t, os.Symlink(modules, filepath.Join(j.dir, "node_modules")))
	programs := filepath.Join(modules, ".bin")
	j.run(filepath.Join(programs, "openapi-typescript"), absolute(j.t, document), "-o", "schema.d.ts")
	// The types of openapi-fetch itself need those of Node.
	j.compileTypes(programs, filepath.Join("jobs", "openapi-fetch.ts"), "--skipLibCheck")
	j.finish("node", filepath.Join("built", "openapi-fetch.js"))
}

func (j *job) generatedJava(folder string) {
	j.generate(folder, "java", ".", "--additional-properties=library=native")
	j.put(filepath.Join("jobs", "Job.java"), filepath.Join("src", "main", "java", "Job.java"))
	j.run("mvn", "-q", "-B", "-DskipTests", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath",
		"-Dmdep.includeScope=runtime")
	classpath, err := os.ReadFile(filepath.Join(j.dir, "classpath"))
	runtest.Must(j.t, err)
	j.finish("java", "-cp", strings.Join([]string{filepath.Join("target", "classes"), string(classpath)}, string(os.PathListSeparator)), "Job")
}
