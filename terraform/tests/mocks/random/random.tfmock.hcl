mock_resource "random_id" {
  defaults = {
    hex = "beef"
  }
}
