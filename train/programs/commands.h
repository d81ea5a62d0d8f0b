// The commands of the one program, `ringtrain COMMAND`. Each takes its command line, whose first word is its own name,
// and returns the exit code. What it throws becomes one message on stderr (train/programs/program.h).
#pragma once

namespace ringtrain {

class Launcher;  // parallel/launch/launcher.h

int prepare_command(int argc, char** argv);
int export_command(int argc, char** argv);
// Commands of several ranks, which may be processes: each process runs the command.
int train_command(int argc, char** argv, Launcher& launcher);
int evaluate_command(int argc, char** argv, Launcher& launcher);
int generate_command(int argc, char** argv, Launcher& launcher);
int check_command(int argc, char** argv, Launcher& launcher);
/// Runs one of these commands by name.
int run_command(const char* name, int argc, char** argv);
/// Belongs to the extras; null in a build without them.
extern int (*const extend_command)(int argc, char** argv);

}  // namespace ringtrain
