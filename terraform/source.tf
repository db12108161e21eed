# What is deployed: what .gcloudignore lets through, so that gcloud functions deploy and this module upload the same.
#
# archive_file copies a folder byte for byte, and can only leave out. What isn't let through is left out by patterns that are made of the
# names that are: nothing has to be looked for, in a folder that may hold a .venv/, links that lead nowhere, or links in a circle.

locals {
  repository = abspath("${path.module}/..")
  source_dir = var.source_dir == null ? local.repository : abspath(var.source_dir)

  # A folder with a dedup/ of its own is archived as it is. Any other gets this repository's, file by file, which only text survives.
  is_whole = fileexists("${local.source_dir}/dedup/__init__.py")

  ignore_file = fileexists("${local.source_dir}/.gcloudignore") ? "${local.source_dir}/.gcloudignore" : "${local.repository}/.gcloudignore"
  ignore_text = try(file(local.ignore_file), "")

  rules = [
    for number, line in [for line in split("\n", local.ignore_text) : trimsuffix(line, "\r")] :
    { number = number + 1, written = line, text = replace(line, "/ +$/", "") }
    if trim(line, " ") != "" && (!startswith(line, "#") || can(regex("^#\\s*!include:", line)))
  ]

  # Why a rule can't be read as gcloud does; null: it can.
  objections = [
    for place, rule in local.rules :
    startswith(rule.text, "#") ? "write the lines of that file here" :
    place == 0 ? (rule.text == "/*" ? null : "the first rule must be /*, which leaves out all that no line lets through") :
    can(regex("[\\\\\\[\\]{}[:cntrl:]\\x{85}\\x{2028}\\x{2029}]", rule.text)) ? "write it without backslashes, brackets, braces and tabs; * and ? are taken where something is left out" :
    can(regex("^!?/? |/ +$| /$", rule.written)) ? "leave out the blanks at its start, and beside its last slash" :
    can(regex("(^!?|/)\\.\\.?(/|$)", rule.text)) ? "write it without . and .. as names" :
    startswith(rule.text, "!") ? (
      can(regex("^!/[^/*?]+/?$", rule.text)) ? null : "let through a name at the top, as !/NAME or !/NAME/; parts of it are left out by lines such as /NAME/PART/"
    ) :
    strcontains(rule.text, "**") ? "write it without **: a line that doesn't start with a slash holds at any depth" :
    can(regex("^/?[^/]+(/[^/]+)*/?$", rule.text)) && !can(regex("^\\*(/|$)", rule.text)) ? null : "write it as NAME, or as /PATH from the top"
  ]
  unread = !try(sha256(local.ignore_text) == filesha256(local.ignore_file), false) ? [
    "It isn't there, or isn't text in UTF-8, or has letters that are written as two, a letter and its accent: type such names anew."
    ] : length(local.rules) == 0 ? ["It has no rule: the first must be /*, which leaves out all that no line lets through."] : [
    for place, rule in local.rules : "Line ${rule.number}, \"${rule.written}\": ${local.objections[place]}." if local.objections[place] != null
  ]

  # The lines that leave out. As gcloud has it, one with a slash in its middle isn't bound to the top by that.
  omissions = [
    for place, rule in local.rules : {
      place     = place
      path      = trim(rule.text, "/")
      regex     = replace(replace(replace(trim(rule.text, "/"), "/([.+^$()|])/", "\\$1"), "*", "[^/]*"), "?", "[^/]")
      from_top  = startswith(rule.text, "/")
      is_folder = endswith(rule.text, "/")
      is_name   = !strcontains(trim(rule.text, "/"), "/")
    } if place > 0 && !startswith(rule.text, "!") && local.objections[place] == null
  ]

  # What is let through: the last line that a name is in decides.
  names = [
    for place, rule in local.rules : {
      place     = place
      name      = trim(trimprefix(rule.text, "!"), "/")
      is_folder = endswith(rule.text, "/")
      is_file   = try(fileexists("${local.source_dir}/${trim(trimprefix(rule.text, "!"), "/")}"), false)
    } if startswith(rule.text, "!") && local.objections[place] == null
  ]
  let_through = distinct([
    for name in local.names : name.name if !(name.is_folder && name.is_file) && !anytrue([
      for omission in local.omissions :
      omission.place > name.place && omission.is_name && !(omission.is_folder && name.is_file) && can(regex("^${omission.regex}$", name.name))
    ])
  ])

  # By each beginning of a name: the letters that go on, "" where it is the name. "." is what the folder itself is called to the patterns.
  # A letter is a rune here, as it is to a pattern; to substr() it would be one with its accents.
  letters = { for name in concat(local.let_through, ["."]) : name => regexall("(?s).", name) }
  goes_on = {
    for step in flatten([
      for letters in values(local.letters) : [
        for length in range(length(letters) + 1) : { beginning = join("", slice(letters, 0, length)), letter = try(letters[length], "") }
      ]
    ]) : step.beginning => step.letter...
  }
  left_out = concat(
    [for beginning, letters in local.goes_on : beginning if beginning != "" && !contains(letters, "")],
    # A hyphen comes first, or it makes a range. Slashes keep letters from becoming one with an accent after them.
    [
      for beginning, letters in local.goes_on :
      "${beginning}[!${contains(letters, "-") ? "-" : ""}/${join("/", [for letter in distinct(letters) : letter if !contains(["", "-"], letter)])}]*"
    ],
    # At the top, the names have decided. A folder is left out by what is in it: a pattern can't tell it from a file.
    flatten([
      for omission in local.omissions : [
        for start in omission.from_top ? (omission.is_name ? [] : [""]) : (omission.is_name ? ["**/*/"] : ["", "**/*/"]) : [
          for end in omission.is_folder ? ["/*"] : ["", "/*"] : "${start}${replace(omission.path, "?", "[!/]")}${end}"
        ]
      ]
    ]),
  )

  # Another folder's files, and this repository's dedup/.
  sources = {
    for file, path in merge(
      { for file in flatten([
        for name in local.is_whole ? [] : local.let_through : [for pattern in [name, "${name}/**"] : tolist(fileset(local.source_dir, pattern))]
      ]) : file => "${local.source_dir}/${file}" },
      { for file in local.is_whole ? toset([]) : fileset("${local.repository}/dedup", "**") : "dedup/${file}" => "${local.repository}/dedup/${file}" },
    ) : file => path
    if !strcontains("/${file}", "/__pycache__/") && !anytrue([
      for omission in local.omissions :
      !(omission.from_top && omission.is_name) &&
      can(regex("${omission.from_top ? "^" : omission.is_name ? "/" : "(^|/)"}${omission.regex}${omission.is_folder ? "/" : "(/|$)"}", file))
    ])
  }
  not_text = [for path in values(local.sources) : path if !try(sha256(file(path)) == filesha256(path), false)]
}

data "archive_file" "source" {
  type             = "zip"
  output_path      = "${path.root}/.terraform/${var.name}-source.zip"
  output_file_mode = "0644" # the same archive, whoever makes it
  source_dir       = local.is_whole ? local.source_dir : null
  excludes         = local.is_whole ? local.left_out : null

  dynamic "source" {
    for_each = local.sources
    content {
      filename = source.key
      content  = file(source.value)
    }
  }

  lifecycle {
    precondition {
      condition     = length(local.unread) == 0
      error_message = "Terraform can't read ${local.ignore_file} as gcloud does. ${join(" ", local.unread)}"
    }
    precondition {
      condition     = length(local.not_text) == 0
      error_message = "A folder without dedup/ is deployed as text alone, and these are no text in UTF-8 that stays as it is: ${join(", ", local.not_text)}. Put a copy of dedup/, or a link to it, into ${local.source_dir}: then all of it is deployed as it is."
    }
  }
}

resource "google_storage_bucket" "source" {
  # checkov:skip=CKV_GCP_62: what is read is this repository's source; Cloud Audit Logs say who, where they are switched on
  # checkov:skip=CKV_GCP_78: objects are named by their hash, and never written twice

  project                     = var.project_id
  name                        = "${replace(var.project_id, "/[.:]/", "-")}-${var.name}-source" # example.com:my-project is no bucket's name
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # it holds nothing but archives of this repository
  labels                      = var.labels

  # No rule by age: it could delete the archive that the function was built from.
  depends_on = [google_project_service.api]
}

resource "google_storage_bucket_object" "source" {
  bucket = google_storage_bucket.source.name
  # The function is built anew when this name changes, and only then.
  name   = "${data.archive_file.source.output_sha256}.zip"
  source = data.archive_file.source.output_path
}
