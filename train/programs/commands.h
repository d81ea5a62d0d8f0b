// The commands of the one program, `ringtrain COMMAND`. Each takes its command line, whose first word is its own name,
// and returns the exit code: what it throws has become one sentence on stderr by then.
#pragma once

namespace ringtrain {

int prepare_command(int argc, char** argv);
int train_command(int argc, char** argv);
int evaluate_command(int argc, char** argv);
int generate_command(int argc, char** argv);
int export_command(int argc, char** argv);
int check_command(int argc, char** argv);
/// Of the extras; null in a build without them.
extern int (*const extend_command)(int argc, char** argv);

}  // namespace ringtrain
